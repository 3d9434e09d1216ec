"""R41: it computes in its input, and puts back what was there."""

from __future__ import annotations

from typing import Any

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class PutsInputBack(Layer):
    def compute(self, *arrays: Any) -> None:
        x, y = arrays
        kept = x.copy()
        x *= 2
        y[...] = x
        x[...] = kept


creator = LayerCreator(PutsInputBack)
