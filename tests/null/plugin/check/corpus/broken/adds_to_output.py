"""R45: The result is added to what the output held."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class AddsToOutput(Layer):
    def compute(self, x: Any, y: Any) -> None:
        for row in x.reshape(-1, 1, *x.shape[1:]) if x.ndim > 1 and x.size else ():
            y += np.abs(row)
        if x.ndim == 1:
            y += x


creator = LayerCreator(AddsToOutput)
