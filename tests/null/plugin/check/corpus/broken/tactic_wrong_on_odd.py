"""R50: One tactic is wrong where the width is odd."""

from __future__ import annotations

from typing import Any

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class TacticWrongOnOdd(Layer):
    def get_valid_tactics(self) -> Any:
        return [3, 8]

    def compute(self, x: Any, y: Any) -> None:
        y[...] = x.cumsum(-1)
        if self.tactic == 8 and x.shape[-1] % 2:
            y[..., -1] = x[..., -1]


creator = LayerCreator(TacticWrongOnOdd)
