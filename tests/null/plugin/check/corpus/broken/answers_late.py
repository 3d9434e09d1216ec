"""R62: The work is handed to a thread, and enqueue does not wait for it."""

from __future__ import annotations

import threading
import time
from typing import Any

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class AnswersLate(Layer):
    def compute(self, x: Any, y: Any) -> None:
        threading.Thread(target=self.finish, args=(x.copy(), y)).start()

    def finish(self, x: Any, y: Any) -> None:
        time.sleep(0.002)
        y[...] = x * 2


creator = LayerCreator(AnswersLate)
