"""R44: The last two dimensions are declared the wrong way round."""

from __future__ import annotations

from typing import Any

from dovetail.expr import DimsExprs
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class TurnedShape(Layer):
    def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
        shape = DimsExprs(inputs[0])
        if len(shape) > 1:
            shape[-1], shape[-2] = inputs[0][-2], inputs[0][-1]
        return [shape]

    def compute(self, x: Any, y: Any) -> None:
        y[...] = x


creator = LayerCreator(TurnedShape)
