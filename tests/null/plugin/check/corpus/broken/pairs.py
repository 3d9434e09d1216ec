"""R44: Elements are taken in pairs, and an odd one is left."""

from __future__ import annotations

from typing import Any

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class Pairs(Layer):
    def compute(self, x: Any, y: Any) -> None:
        flat, out = x.reshape(-1), y.reshape(-1)
        for start in range(0, x.size - 1, 2):
            out[start : start + 2] = flat[start : start + 2] * 2


creator = LayerCreator(Pairs)
