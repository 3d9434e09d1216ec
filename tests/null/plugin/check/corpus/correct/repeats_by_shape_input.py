"""A shape input says how often the input is repeated."""

from __future__ import annotations

from typing import Any

from dovetail.expr import DimsExprs
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class RepeatsByShapeInput(Layer):
    def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
        return [DimsExprs([shape_inputs[0][0], *inputs[0]])] if len(inputs[0]) < 8 else []

    def compute(self, x: Any, y: Any) -> None:
        y[...] = x


creator = LayerCreator(RepeatsByShapeInput)
