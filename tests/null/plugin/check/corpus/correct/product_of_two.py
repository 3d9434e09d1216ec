"""Two inputs, and a product of both."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.expr import DimsExprs
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class ProductOfTwo(Layer):
    def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
        return [DimsExprs([*inputs[0][:-1], inputs[1][-2]])] if len(inputs[0]) > 1 else []

    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> Any:
        return num_inputs == 2 and super().supports_format_combination(pos, in_out, num_inputs)

    def compute(self, a: Any, b: Any, y: Any) -> None:
        y[...] = a @ np.swapaxes(b, -1, -2)


creator = LayerCreator(ProductOfTwo)
