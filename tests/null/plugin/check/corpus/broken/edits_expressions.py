"""R09: The expressions of the inputs are changed."""

from __future__ import annotations

from typing import Any

from dovetail.expr import DimsExprs
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class EditsExpressions(Layer):
    def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
        shape = DimsExprs(inputs[0])
        inputs[0][0] = exprBuilder.constant(1)
        return [shape]


creator = LayerCreator(EditsExpressions)
