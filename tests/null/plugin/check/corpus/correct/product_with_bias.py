"""Three inputs of different shapes."""

from __future__ import annotations

from typing import Any

from dovetail.expr import DimsExprs
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class ProductWithBias(Layer):
    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> Any:
        return num_inputs == 3 and super().supports_format_combination(pos, in_out, num_inputs)

    def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
        if [len(shape) for shape in inputs] != [2, 2, 1]:
            raise ValueError("a matrix, a matrix and a vector are expected")
        return [DimsExprs([inputs[0][0], inputs[1][1]])]

    def compute(self, x: Any, w: Any, bias: Any, y: Any) -> None:
        y[...] = x @ w + bias


creator = LayerCreator(ProductWithBias)
