"""Keeps a parameter in another unit than its field has, and rounds it to whole thousandths."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from dovetail.plugin.fields import PluginField, PluginFieldType
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class NumberInThousands(Layer):
    FIELDS: ClassVar[dict[str, Any]] = {"alpha": (PluginFieldType.FLOAT32, 0.5)}

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self.alpha_thousandths = round(self.alpha * 1000)
        self.alpha = self.alpha_thousandths / 1000

    def field(self, name: str) -> PluginField:
        return PluginField(name, np.array([self.alpha_thousandths], np.int32), PluginFieldType.INT32)

    def compute(self, *arrays: Any) -> None:
        arrays[1][...] = arrays[0] * np.float32(self.alpha)


class Creator(LayerCreator):
    def read(self, field_collection: Any) -> dict[str, Any]:
        values = super().read(field_collection)
        for field in field_collection:
            if field.type == PluginFieldType.INT32:
                values[field.name] = field.data[0].item() / 1000
        return values


creator = Creator(NumberInThousands)
