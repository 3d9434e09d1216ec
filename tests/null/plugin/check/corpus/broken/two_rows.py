"""R44: Only as many rows are written as the batch had on the author's desk."""

from __future__ import annotations

from typing import Any

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class TwoRows(Layer):
    def compute(self, x: Any, y: Any) -> None:
        for row in range(min(2, len(x))):
            y[row] = x[row] * 2


creator = LayerCreator(TwoRows)
