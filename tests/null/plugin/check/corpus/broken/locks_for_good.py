"""R61 R55: A lock is taken by the first of two contexts and given back by nobody."""

from __future__ import annotations

import threading
from typing import Any

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator

_BUSY = threading.Lock()


class LocksForGood(Layer):
    def compute(self, x: Any, y: Any) -> None:
        if not _BUSY.acquire(blocking=False):
            threading.Event().wait()
        for row in range(len(x)):
            y[row] = x[row]
        _BUSY.release()


creator = LayerCreator(LocksForGood)
