"""R49: Where nothing is found, the first one of it is asked for."""

from __future__ import annotations

from typing import Any

from dovetail.expr import DimensionOperation, DimsExprs
from dovetail.plugin.arrays import as_array, write_scalar
from dovetail.types import DataType, TensorFormat
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class NothingFound(Layer):
    OUTPUTS = 2

    def get_output_data_types(self, input_types: Any) -> Any:
        return [DataType.FLOAT, DataType.INT64]

    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> Any:
        wanted = DataType.INT64 if pos == num_inputs + 1 else DataType.FLOAT
        return (in_out[pos].desc.type, in_out[pos].desc.format) == (wanted, TensorFormat.LINEAR)

    def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
        count = inputs[0][0]
        for dim in inputs[0][1:]:
            count = exprBuilder.operation(DimensionOperation.PROD, count, dim)
        half = exprBuilder.operation(DimensionOperation.FLOOR_DIV, count, exprBuilder.constant(2))
        return [DimsExprs([exprBuilder.declare_size_tensor(1, half, count)]), DimsExprs()]

    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int) -> Any:
        x = as_array(inputs[0], input_desc[0])
        found = x[x > 0]
        as_array(outputs[0], output_desc[0], shape=found.shape)[...] = found / found[0]
        write_scalar(outputs[1], output_desc[1].type, found.size)


creator = LayerCreator(NothingFound)
