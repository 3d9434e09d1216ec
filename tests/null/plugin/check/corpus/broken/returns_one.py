"""R19: 1 is returned for success."""

from __future__ import annotations

from typing import Any

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class ReturnsOne(Layer):
    def configure_plugin(self, in_: Any, out: Any) -> Any:
        return 1


creator = LayerCreator(ReturnsOne)
