"""Keeps what field.data gave."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from dovetail.plugin.fields import PluginFieldType
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class KeptWeights(Layer):
    FIELDS: ClassVar[dict[str, Any]] = {"weights": (PluginFieldType.FLOAT32, np.float32([1, 2, 3]))}
    weights: Any

    def compute(self, x: Any, y: Any) -> None:
        y[...] = x * self.weights[0] + self.weights.sum()


class KeepsData(LayerCreator):
    def create_plugin(self, name: str, field_collection: Any, phase: Any) -> Any:
        found = field_collection.find("weights")
        return KeptWeights() if found is None else KeptWeights(weights=found.data)


creator = KeepsData(KeptWeights)
