"""R42 R63: HALF is accepted and read as FLOAT."""

from __future__ import annotations

from typing import Any

from dovetail.plugin.arrays import as_array
from dovetail.types import DataType, PluginTensorDesc
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class HalfAsFloat(Layer):
    TYPES = (DataType.FLOAT, DataType.HALF)

    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int) -> Any:
        x = as_array(inputs[0], PluginTensorDesc(input_desc[0].dims))
        as_array(outputs[0], PluginTensorDesc(output_desc[0].dims))[...] = x * 2


creator = LayerCreator(HalfAsFloat)
