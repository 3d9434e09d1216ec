"""R68: attach_to_context ignores a signal that the program may need."""

from __future__ import annotations

import signal
from typing import Any

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class IgnoresSignals(Layer):
    def attach_to_context(self, resource_context: Any) -> Any:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        return self.clone()


creator = LayerCreator(IgnoresSignals)
