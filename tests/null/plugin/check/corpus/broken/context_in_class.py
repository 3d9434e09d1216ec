"""R55: The number being worked on is handed to a helper through the class."""

from __future__ import annotations

from typing import Any

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class ContextInClass(Layer):
    factor: Any = None

    def compute(self, x: Any, y: Any) -> None:
        ContextInClass.factor = x.max(initial=0)
        self.helper(x, y)

    def helper(self, x: Any, y: Any) -> None:
        y[...] = x * ContextInClass.factor


creator = LayerCreator(ContextInClass)
