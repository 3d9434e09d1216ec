"""Takes any layout and adds a number that depends on the channel."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.plugin.arrays import as_array
from dovetail.types import DataType, TensorFormat
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class EveryLayout(Layer):
    FORMATS = (TensorFormat.LINEAR, TensorFormat.HWC, TensorFormat.CHW32)
    TYPES = (DataType.FLOAT, DataType.HALF)

    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int) -> Any:
        x, y = as_array(inputs[0], input_desc[0]), as_array(outputs[0], output_desc[0])
        layout, rank = input_desc[0].format, len(input_desc[0].dims)
        if rank < 3:
            y[...] = x
        elif layout == TensorFormat.LINEAR:
            y[...] = x + np.arange(x.shape[-3], dtype=x.dtype)[:, None, None]
        elif layout == TensorFormat.HWC:
            y[...] = x + np.arange(x.shape[-1], dtype=x.dtype)
        else:
            blocks, lanes = x.shape[-4], x.shape[-1]
            y[...] = x + np.arange(blocks * lanes, dtype=x.dtype).reshape(blocks, 1, 1, lanes)


creator = LayerCreator(EveryLayout)
