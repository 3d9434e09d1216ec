"""R56: destroy empties what the siblings use."""

from __future__ import annotations

from typing import Any

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class DestroysShared(Layer):
    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self.table = {"scale": 2}

    def compute(self, x: Any, y: Any) -> None:
        y[...] = x * self.table["scale"]

    def destroy(self) -> None:
        self.table.clear()


creator = LayerCreator(DestroysShared)
