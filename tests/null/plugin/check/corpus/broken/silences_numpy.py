"""R68: NumPy is told to ignore errors, and not told to stop that."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class SilencesNumpy(Layer):
    def compute(self, x: Any, y: Any) -> None:
        np.seterr(all="ignore")
        y[...] = np.sqrt(np.abs(x))


creator = LayerCreator(SilencesNumpy)
