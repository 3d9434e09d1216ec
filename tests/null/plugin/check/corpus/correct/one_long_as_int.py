"""Stores one int64 that is declared INT32, as existing plugins do."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from dovetail.plugin.fields import PluginField, PluginFieldCollection, PluginFieldType
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class OneLongAsInt(Layer):
    FIELDS: ClassVar[dict[str, Any]] = {"axis": (PluginFieldType.INT32, -1)}
    axis: int

    def get_fields_to_serialize(self) -> Any:
        return PluginFieldCollection([PluginField("axis", np.array([self.axis]), PluginFieldType.INT32)])

    def compute(self, x: Any, y: Any) -> None:
        y[...] = np.flip(x, self.axis)


creator = LayerCreator(OneLongAsInt)
