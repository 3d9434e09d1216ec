"""R44: The last dimension of the output is declared as a number."""

from __future__ import annotations

from typing import Any

from dovetail.expr import DimsExprs
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class FixedOutput(Layer):
    def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
        shape = DimsExprs(inputs[0])
        shape[-1] = exprBuilder.constant(8)
        return [shape]


creator = LayerCreator(FixedOutput)
