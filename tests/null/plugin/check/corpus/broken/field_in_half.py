"""R37: stores a FLOAT32 parameter in half precision."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from dovetail.plugin.fields import PluginField, PluginFieldType
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class FieldInHalf(Layer):
    FIELDS: ClassVar[dict[str, Any]] = {"alpha": (PluginFieldType.FLOAT32, 0.5)}

    def field(self, name: str) -> PluginField:
        half = np.array([self.alpha]).astype(np.float16)
        return PluginField(name, half.view(np.int16), PluginFieldType.INT16)

    def compute(self, *arrays: Any) -> None:
        arrays[1][...] = arrays[0] * self.alpha


class Creator(LayerCreator):
    def read(self, field_collection: Any) -> dict[str, Any]:
        values = super().read(field_collection)
        for field in field_collection:
            if field.type == PluginFieldType.INT16:
                values[field.name] = float(field.data.view(np.float16)[0])
        return values


creator = Creator(FieldInHalf)
