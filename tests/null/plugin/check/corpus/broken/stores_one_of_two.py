"""R38: A parameter is not stored."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from dovetail.plugin.fields import PluginFieldCollection, PluginFieldType
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class StoresOneOfTwo(Layer):
    FIELDS: ClassVar[dict[str, Any]] = {
        "alpha": (PluginFieldType.FLOAT32, 1.0),
        "beta": (PluginFieldType.FLOAT32, 0.0),
    }
    alpha: float
    beta: float

    def get_fields_to_serialize(self) -> Any:
        return PluginFieldCollection([self.field("alpha")])

    def compute(self, x: Any, y: Any) -> None:
        y[...] = x * np.float32(self.alpha) + np.float32(self.beta)


creator = LayerCreator(StoresOneOfTwo)
