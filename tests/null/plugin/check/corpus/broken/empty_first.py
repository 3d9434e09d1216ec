"""R53: The first row is looked at, whether there is one or not."""

from __future__ import annotations

from typing import Any

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class EmptyFirst(Layer):
    def compute(self, x: Any, y: Any) -> None:
        y[...] = x - x[0]


creator = LayerCreator(EmptyFirst)
