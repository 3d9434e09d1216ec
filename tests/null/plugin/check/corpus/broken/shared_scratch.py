"""R26 R32 R55: Clones share one scratch array, which is grown in place."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class SharedScratch(Layer):
    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self.scratch = np.zeros(1 << 14, np.float32)

    def compute(self, x: Any, y: Any) -> None:
        part = self.scratch[: x.size]
        np.multiply(x.reshape(-1), 3, out=part)
        y[...] = part.reshape(x.shape)


creator = LayerCreator(SharedScratch)
