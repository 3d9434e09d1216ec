"""Shares ten megabytes of weights with its clones."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class LargeWeights(Layer):
    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self.weights = np.ones((16, 160_000), np.float32)

    def compute(self, x: Any, y: Any) -> None:
        y[...] = x * self.weights[0, : x.shape[-1]]


creator = LayerCreator(LargeWeights)
