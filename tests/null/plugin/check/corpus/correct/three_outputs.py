"""Has outputs of different types and shapes."""

from __future__ import annotations

from typing import Any

from dovetail.expr import DimsExprs
from dovetail.types import DataType, TensorFormat
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class ThreeOutputs(Layer):
    OUTPUTS = 3

    def get_output_data_types(self, input_types: Any) -> Any:
        return [DataType.FLOAT, DataType.INT64, DataType.BOOL]

    def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
        return [DimsExprs(inputs[0][:-1]), DimsExprs(inputs[0][:-1]), DimsExprs(inputs[0])]

    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> Any:
        kinds = [DataType.FLOAT] * num_inputs + [DataType.FLOAT, DataType.INT64, DataType.BOOL]
        return (in_out[pos].desc.type, in_out[pos].desc.format) == (kinds[pos], TensorFormat.LINEAR)

    def compute(self, x: Any, largest: Any, place: Any, mask: Any) -> None:
        largest[...] = x.max(-1)
        place[...] = x.argmax(-1)
        mask[...] = x > 0


creator = LayerCreator(ThreeOutputs)
