"""R37: stores an INT32 parameter in a byte."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from dovetail.plugin.fields import PluginField, PluginFieldType
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class FieldInAByte(Layer):
    FIELDS: ClassVar[dict[str, Any]] = {"steps": (PluginFieldType.INT32, 3)}

    def field(self, name: str) -> PluginField:
        return PluginField(name, np.array([self.steps]).astype(np.int8), PluginFieldType.INT8)

    def compute(self, *arrays: Any) -> None:
        arrays[1][...] = arrays[0] * self.steps


creator = LayerCreator(FieldInAByte)
