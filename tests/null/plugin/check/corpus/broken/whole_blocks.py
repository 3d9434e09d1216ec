"""R44: Rows are worked on in blocks of four columns, and the rest is left."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class WholeBlocks(Layer):
    def compute(self, x: Any, y: Any) -> None:
        for block in range(x.shape[-1] // 4):
            y[..., 4 * block : 4 * block + 4] = np.sqrt(np.abs(x[..., 4 * block : 4 * block + 4]))


creator = LayerCreator(WholeBlocks)
