"""R61: on_shape_change waits for somebody who never comes."""

from __future__ import annotations

import threading
from typing import Any

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class Hangs(Layer):
    def on_shape_change(self, in_: Any, out: Any) -> Any:
        threading.Event().wait()


creator = LayerCreator(Hangs)
