"""R26 R32: A list that configure_plugin fills is shared."""

from __future__ import annotations

from typing import Any

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class ClonesShareList(Layer):
    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self.shapes: list[Any] = []

    def configure_plugin(self, in_: Any, out: Any) -> Any:
        self.shapes.append(tuple(in_[0].max))


creator = LayerCreator(ClonesShareList)
