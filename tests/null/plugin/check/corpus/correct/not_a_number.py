"""The logarithm of negative numbers is not a number."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class NotANumber(Layer):
    def compute(self, x: Any, y: Any) -> None:
        with np.errstate(all="ignore"):
            y[...] = np.log(x)


creator = LayerCreator(NotANumber)
