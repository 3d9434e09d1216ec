"""Every dimension must be known when the plan is built."""

from __future__ import annotations

from typing import Any

from dovetail.expr import DimsExprs
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class ConstantsOnly(Layer):
    def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
        if not all(dim.is_constant() for dim in inputs[0]):
            raise ValueError("every dimension must be a constant")
        sizes = [dim.get_constant_value() for dim in inputs[0]]
        return [DimsExprs([exprBuilder.constant(size) for size in reversed(sizes)])]

    def compute(self, x: Any, y: Any) -> None:
        y[...] = x.T


creator = LayerCreator(ConstantsOnly)
