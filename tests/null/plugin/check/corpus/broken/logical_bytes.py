"""R44 R51 R42: In vectors of 32 channels only the logical number of bytes is copied."""

from __future__ import annotations

import ctypes
from typing import Any

from dovetail.types import TensorFormat, volume
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class LogicalBytes(Layer):
    FORMATS = (TensorFormat.LINEAR, TensorFormat.CHW32)

    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int) -> Any:
        ctypes.memmove(outputs[0], inputs[0], 4 * volume(input_desc[0].dims))


creator = LayerCreator(LogicalBytes)
