"""R65: The first tactic makes the table that the second one needs."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator

_TABLE: list[Any] = []


class FirstTacticPrepares(Layer):
    def get_valid_tactics(self) -> Any:
        return [1, 2]

    def compute(self, x: Any, y: Any) -> None:
        if self.tactic == 1:
            _TABLE[:] = [np.float32(2)]
        y[...] = x * (_TABLE[0] if _TABLE else np.float32(1))


creator = LayerCreator(FirstTacticPrepares)
