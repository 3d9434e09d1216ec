"""R28: Every clone has megabytes of its own."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class CloneCopiesWeights(Layer):
    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self.weights = np.ones(600_000, np.float32)

    def clone(self) -> Any:
        twin = super().clone()
        twin.weights = self.weights.copy()
        return twin


creator = LayerCreator(CloneCopiesWeights)
