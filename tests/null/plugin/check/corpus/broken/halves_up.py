"""R44: Every second element is more than half of an odd number of them."""

from __future__ import annotations

from typing import Any

from dovetail.expr import DimensionOperation, DimsExprs
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class HalvesUp(Layer):
    def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
        shape = DimsExprs(inputs[0])
        shape[-1] = exprBuilder.operation(DimensionOperation.FLOOR_DIV, shape[-1], exprBuilder.constant(2))
        return [shape]

    def compute(self, x: Any, y: Any) -> None:
        y[...] = x[..., ::2]


creator = LayerCreator(HalvesUp)
