"""R55: One scratch array for the whole class."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class ClassScratch(Layer):
    scratch: Any = np.zeros(1 << 14, np.float32)

    def compute(self, x: Any, y: Any) -> None:
        part = self.scratch[: x.size]
        np.multiply(x.reshape(-1), 3, out=part)
        y[...] = part.reshape(x.shape)


creator = LayerCreator(ClassScratch)
