"""Keeps a buffer that grows with the shapes."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.types import volume
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class GrowsItsBuffer(Layer):
    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self.buffer = np.zeros(0, np.float32)

    def on_shape_change(self, in_: Any, out: Any) -> Any:
        if volume(in_[0].dims) > self.buffer.size:
            self.buffer = np.zeros(volume(in_[0].dims), np.float32)

    def compute(self, x: Any, y: Any) -> None:
        part = self.buffer[: x.size].reshape(x.shape)
        np.square(x, out=part)
        np.sqrt(part, out=y)


creator = LayerCreator(GrowsItsBuffer)
