"""Rows of a table by index."""

from __future__ import annotations

from typing import Any

from dovetail.expr import DimsExprs
from dovetail.types import DataType, TensorFormat
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class Lookup(Layer):
    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> Any:
        wanted = DataType.INT32 if pos == 1 else DataType.FLOAT
        return num_inputs == 2 and (in_out[pos].desc.type, in_out[pos].desc.format) == (wanted, TensorFormat.LINEAR)

    def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
        return [DimsExprs([*inputs[1], *inputs[0][1:]])] if len(inputs[0]) <= 2 else []

    def compute(self, table: Any, index: Any, y: Any) -> None:
        y[...] = table[index]


creator = LayerCreator(Lookup)
