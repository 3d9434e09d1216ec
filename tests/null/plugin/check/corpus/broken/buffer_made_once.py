"""R48: A buffer is made at the first run and never grows."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class BufferMadeOnce(Layer):
    buffer: Any = None

    def compute(self, x: Any, y: Any) -> None:
        if self.buffer is None:
            self.buffer = np.zeros(x.shape, np.float32)
        self.buffer[...] = x
        y[...] = self.buffer * 2


creator = LayerCreator(BufferMadeOnce)
