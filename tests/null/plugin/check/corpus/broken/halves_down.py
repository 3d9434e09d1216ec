"""R44: The declared size is rounded up, the loop rounds down."""

from __future__ import annotations

from typing import Any

from dovetail.expr import DimensionOperation, DimsExprs
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class HalvesDown(Layer):
    def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
        shape = DimsExprs(inputs[0])
        shape[-1] = exprBuilder.operation(DimensionOperation.CEIL_DIV, shape[-1], exprBuilder.constant(2))
        return [shape]

    def compute(self, x: Any, y: Any) -> None:
        for column in range(x.shape[-1] // 2):
            y[..., column] = x[..., 2 * column]


creator = LayerCreator(HalvesDown)
