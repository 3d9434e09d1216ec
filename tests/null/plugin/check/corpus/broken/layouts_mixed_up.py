"""R51: Input and output may have different layouts, and bytes are copied all the same."""

from __future__ import annotations

import ctypes
from typing import Any

from dovetail.types import DataType, TensorFormat, volume
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class LayoutsMixedUp(Layer):
    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> Any:
        desc = in_out[pos].desc
        return desc.type == DataType.FLOAT and desc.format in (TensorFormat.LINEAR, TensorFormat.HWC)

    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int) -> Any:
        if volume(input_desc[0].dims):
            ctypes.memmove(outputs[0], inputs[0], 4 * volume(input_desc[0].dims))


creator = LayerCreator(LayoutsMixedUp)
