"""R41: The input is clipped before it is used."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class ClipsItsInput(Layer):
    def compute(self, x: Any, y: Any) -> None:
        np.clip(x, -1, 1, out=x)
        y[...] = x * 2


creator = LayerCreator(ClipsItsInput)
