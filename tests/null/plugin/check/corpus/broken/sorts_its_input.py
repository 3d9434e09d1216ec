"""R41: The input is sorted in place."""

from __future__ import annotations

from typing import Any

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class SortsItsInput(Layer):
    def compute(self, x: Any, y: Any) -> None:
        x.sort(-1)
        y[...] = x


creator = LayerCreator(SortsItsInput)
