"""R46 R47: The result depends on how many runs there were in the process."""

from __future__ import annotations

from typing import Any

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class CountsRuns(Layer):
    runs = 0

    def compute(self, x: Any, y: Any) -> None:
        CountsRuns.runs += 1
        y[...] = x + CountsRuns.runs


creator = LayerCreator(CountsRuns)
