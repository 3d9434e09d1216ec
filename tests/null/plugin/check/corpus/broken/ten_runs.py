"""R47: A ring of ten places is full after ten runs."""

from __future__ import annotations

from typing import Any

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class TenRuns(Layer):
    place = 0

    def compute(self, x: Any, y: Any) -> None:
        ring = [0] * 10
        ring[self.place] = 1
        self.place += 1
        y[...] = x


creator = LayerCreator(TenRuns)
