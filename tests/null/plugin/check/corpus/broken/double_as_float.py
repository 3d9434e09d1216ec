"""R34: A Python float is stored as float64 and declared FLOAT32."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from dovetail.plugin.fields import PluginField, PluginFieldCollection, PluginFieldType
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class DoubleAsFloat(Layer):
    FIELDS: ClassVar[dict[str, Any]] = {"alpha": (PluginFieldType.FLOAT32, 1.0)}
    alpha: float

    def get_fields_to_serialize(self) -> Any:
        return PluginFieldCollection([PluginField("alpha", np.array([self.alpha]), PluginFieldType.FLOAT32)])

    def compute(self, x: Any, y: Any) -> None:
        y[...] = x * np.float32(self.alpha)


creator = LayerCreator(DoubleAsFloat)
