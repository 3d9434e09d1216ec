"""R44: The second output is never written."""

from __future__ import annotations

from typing import Any

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class SecondOutputForgotten(Layer):
    OUTPUTS = 2

    def compute(self, x: Any, y: Any, z: Any) -> None:
        y[...] = x


creator = LayerCreator(SecondOutputForgotten)
