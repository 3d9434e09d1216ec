"""R58: Every input is kept, for a debugger that is long gone."""

from __future__ import annotations

from typing import Any

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator

_SEEN: list[Any] = []


class KeepsEveryInput(Layer):
    def compute(self, x: Any, y: Any) -> None:
        _SEEN.append(x.copy())
        y[...] = x


creator = LayerCreator(KeepsEveryInput)
