"""Has weights for three channels and takes no other number of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class ThreeChannels(Layer):
    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self.weights = np.float32([0.3, 0.6, 0.1]).reshape(3, 1, 1)

    def compute(self, x: Any, y: Any) -> None:
        y[...] = x * self.weights


creator = LayerCreator(ThreeChannels)
