"""R38: A runtime-phase object was never configured."""

from __future__ import annotations

from typing import Any

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class NeedsConfiguration(Layer):
    def configure_plugin(self, in_: Any, out: Any) -> Any:
        self.rank = len(in_[0].max)

    def compute(self, x: Any, y: Any) -> None:
        y[...] = x * self.rank


creator = LayerCreator(NeedsConfiguration)
