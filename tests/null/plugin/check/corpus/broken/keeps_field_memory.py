"""R39: The memory of a field is kept."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from dovetail.plugin.fields import PluginFieldType
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class KeepsFieldMemory(Layer):
    FIELDS: ClassVar[dict[str, Any]] = {"weights": (PluginFieldType.FLOAT32, np.ones(3, np.float32))}
    weights: Any

    def compute(self, x: Any, y: Any) -> None:
        y[...] = x * self.weights[0]


class Keeps(LayerCreator):
    def create_plugin(self, name: str, field_collection: Any, phase: Any) -> Any:
        found = field_collection.find("weights")
        return KeepsFieldMemory() if found is None else KeepsFieldMemory(weights=found.buffer)


creator = Keeps(KeepsFieldMemory)
