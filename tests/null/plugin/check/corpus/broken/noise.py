"""R46: Noise comes from the global generator."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class Noise(Layer):
    def compute(self, x: Any, y: Any) -> None:
        y[...] = x + np.random.standard_normal(x.shape)


creator = LayerCreator(Noise)
