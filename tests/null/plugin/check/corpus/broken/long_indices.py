"""R42: Indices are declared INT32 and written as int64."""

from __future__ import annotations

from typing import Any

from dovetail.plugin.arrays import as_array
from dovetail.types import DataType, PluginTensorDesc, TensorFormat
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class LongIndices(Layer):
    def get_output_data_types(self, input_types: Any) -> Any:
        return [DataType.INT32]

    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> Any:
        wanted = DataType.INT32 if pos == num_inputs else DataType.FLOAT
        return (in_out[pos].desc.type, in_out[pos].desc.format) == (wanted, TensorFormat.LINEAR)

    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int) -> Any:
        x = as_array(inputs[0], input_desc[0])
        as_array(outputs[0], PluginTensorDesc(output_desc[0].dims, DataType.INT64))[...] = x.argsort(-1)


creator = LayerCreator(LongIndices)
