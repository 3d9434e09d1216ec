"""R61: Address 8 is read."""

from __future__ import annotations

import ctypes
from typing import Any

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class ReadsNull(Layer):
    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int) -> Any:
        ctypes.string_at(8)


creator = LayerCreator(ReadsNull)
