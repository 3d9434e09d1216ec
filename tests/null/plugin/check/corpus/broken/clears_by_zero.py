"""R45: it clears the output by a multiplication, which leaves NaN as it is."""

from __future__ import annotations

from typing import Any

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class ClearsByZero(Layer):
    def compute(self, *arrays: Any) -> None:
        x, y = arrays
        y *= 0
        y += x


creator = LayerCreator(ClearsByZero)
