"""R08: A dimension is taken for a constant without asking."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.expr import DimsExprs
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class AsksForConstant(Layer):
    def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
        shape = DimsExprs(inputs[0])
        shape[-1] = exprBuilder.constant(2 * inputs[0][-1].get_constant_value())
        return [shape]

    def compute(self, x: Any, y: Any) -> None:
        y[...] = np.concatenate([x, x], -1)


creator = LayerCreator(AsksForConstant)
