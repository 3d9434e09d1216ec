"""Shares one buffer among all objects and guards it with a lock."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class LockedBuffer(Layer):
    lock = threading.Lock()
    buffer: Any = np.zeros(1 << 15, np.float32)

    def compute(self, x: Any, y: Any) -> None:
        with self.lock:
            part = self.buffer[: x.size]
            part[...] = x.reshape(-1)
            y[...] = part.reshape(x.shape) * 2


creator = LayerCreator(LockedBuffer)
