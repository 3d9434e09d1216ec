"""R62: A thread goes on writing after enqueue has returned."""

from __future__ import annotations

import threading
import time
from typing import Any

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class WritesLate(Layer):
    def compute(self, x: Any, y: Any) -> None:
        y[...] = x
        threading.Thread(target=self.finish, args=(x.copy(), y)).start()

    def finish(self, x: Any, y: Any) -> None:
        time.sleep(0.003)
        y[...] = x + 1


creator = LayerCreator(WritesLate)
