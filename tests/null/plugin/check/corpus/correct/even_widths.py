"""Refuses odd widths, with a reason."""

from __future__ import annotations

from typing import Any

from dovetail.expr import DimensionOperation, DimsExprs
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class EvenWidths(Layer):
    def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
        shape = DimsExprs(inputs[0])
        shape[-1] = exprBuilder.operation(DimensionOperation.FLOOR_DIV, shape[-1], exprBuilder.constant(2))
        return [shape]

    def on_shape_change(self, in_: Any, out: Any) -> Any:
        if in_[0].dims[-1] % 2:
            raise ValueError(f"the width must be even, not {in_[0].dims[-1]}")

    def compute(self, x: Any, y: Any) -> None:
        y[...] = x[..., ::2] + x[..., 1::2]


creator = LayerCreator(EvenWidths)
