"""R58: every change of shapes leaves a thread."""

from __future__ import annotations

import threading
from typing import Any

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class ThreadByShape(Layer):
    def on_shape_change(self, in_: Any, out: Any) -> Any:
        threading.Thread(target=threading.Event().wait, daemon=True).start()


creator = LayerCreator(ThreadByShape)
