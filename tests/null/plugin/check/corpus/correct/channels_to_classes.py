"""A product with weights: the width of the input is fixed, that of the output is another."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.expr import DimsExprs
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class ChannelsToClasses(Layer):
    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self.weights = np.linspace(-1, 1, 40, dtype=np.float32).reshape(8, 5)

    def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
        return [DimsExprs([*inputs[0][:-1], exprBuilder.constant(5)])]

    def compute(self, x: Any, y: Any) -> None:
        y[...] = x @ self.weights


creator = LayerCreator(ChannelsToClasses)
