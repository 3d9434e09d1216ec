"""R53: The maximum of nothing is asked for."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class EmptyMaximum(Layer):
    def compute(self, x: Any, y: Any) -> None:
        y[...] = x / (np.abs(x).max() + 1)


creator = LayerCreator(EmptyMaximum)
