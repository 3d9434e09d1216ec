"""R61: A loop does not end for an empty input."""

from __future__ import annotations

from typing import Any

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class HangsOnEmpty(Layer):
    def compute(self, x: Any, y: Any) -> None:
        step, done = min(4, x.size), 0
        while done < max(x.size, 1):
            y.reshape(-1)[done : done + step] = x.reshape(-1)[done : done + step]
            done += step


creator = LayerCreator(HangsOnEmpty)
