"""R34: An array of int64 is declared INT32."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from dovetail.plugin.fields import PluginField, PluginFieldCollection, PluginFieldType
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class LongAsInt(Layer):
    FIELDS: ClassVar[dict[str, Any]] = {"pads": (PluginFieldType.INT32, np.array([1, 2]))}
    pads: Any

    def get_fields_to_serialize(self) -> Any:
        return PluginFieldCollection([PluginField("pads", np.asarray(self.pads, np.int64), PluginFieldType.INT32)])

    def compute(self, x: Any, y: Any) -> None:
        y[...] = x * self.pads[0] + self.pads[1]


creator = LayerCreator(LongAsInt)
