"""R58: Each run starts a thread that never ends."""

from __future__ import annotations

import threading
from typing import Any

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class LeavesThreads(Layer):
    def compute(self, x: Any, y: Any) -> None:
        threading.Thread(target=threading.Event().wait, daemon=True).start()
        y[...] = x


creator = LayerCreator(LeavesThreads)
