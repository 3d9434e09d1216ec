"""R47: After ten runs the answer is another."""

from __future__ import annotations

from typing import Any

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class WrongAfterTen(Layer):
    runs = 0

    def compute(self, x: Any, y: Any) -> None:
        self.runs += 1
        y[...] = x if self.runs <= 10 else x * 2


creator = LayerCreator(WrongAfterTen)
