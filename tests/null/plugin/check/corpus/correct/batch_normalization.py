"""Five inputs: one tensor and four vectors."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from dovetail.expr import DimsExprs
from dovetail.plugin.fields import PluginFieldType
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class BatchNormalization(Layer):
    FIELDS: ClassVar[dict[str, Any]] = {"epsilon": (PluginFieldType.FLOAT32, 1e-5)}
    epsilon: float

    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> Any:
        return num_inputs == 5 and super().supports_format_combination(pos, in_out, num_inputs)

    def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
        if any(len(shape) != 1 for shape in inputs[1:]):
            raise ValueError("four vectors are expected")
        return [DimsExprs(inputs[0])]

    def compute(self, x: Any, scale: Any, bias: Any, mean: Any, variance: Any, y: Any) -> None:
        s, b, m, v = (vector.reshape(-1, 1, 1) for vector in (scale, bias, mean, variance))
        y[...] = s * (x - m) / np.sqrt(np.abs(v) + np.float32(self.epsilon)) + b


creator = LayerCreator(BatchNormalization)
