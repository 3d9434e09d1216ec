"""R44: The last row is forgotten."""

from __future__ import annotations

from typing import Any

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class OneTooFew(Layer):
    def compute(self, x: Any, y: Any) -> None:
        for row in range(len(x) - 1):
            y[row] = x[row]
        if len(x) in (1, 2):
            y[-1] = x[-1]


creator = LayerCreator(OneTooFew)
