"""Plugins whose output shapes depend on data, on shape inputs, or on memory they share."""

from __future__ import annotations

from typing import Any

import numpy as np

import dovetail as dt
from dovetail.plugin import as_array
from tests.support.plugins import Calls, ScalePlugin


class PositivePlugin(ScalePlugin):
    """The positive elements of a 1-D input, and how many there are: a data-dependent shape."""

    formats = (dt.TensorFormat.LINEAR,)
    tactics = ()

    def __init__(self, factor: float = 1.0, calls: Calls | None = None) -> None:
        super().__init__(factor, calls)
        self.plugin_name = "TestPositive"
        self.num_outputs = 2

    def get_output_data_types(self, input_types: Any) -> Any:
        return [input_types[0], dt.int64]

    def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
        upper = inputs[0][0]
        opt = exprBuilder.operation(dt.DimensionOperation.FLOOR_DIV, upper, exprBuilder.constant(2))
        size = exprBuilder.declare_size_tensor(1, opt, upper)
        return [dt.DimsExprs([size]), dt.DimsExprs(0)]

    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> bool:
        desc = in_out[pos].desc
        return desc.format == dt.TensorFormat.LINEAR and desc.type == (dt.int64 if pos == 2 else dt.float32)

    def enqueue(
        self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int
    ) -> None:
        self.note("enqueue", [tuple(d.dims) for d in output_desc])
        x = as_array(inputs[0], input_desc[0])
        kept = x[x > 0] * np.float32(self.factor)
        as_array(outputs[0], output_desc[0], shape=kept.shape)[...] = kept
        as_array(outputs[1], output_desc[1])[...] = kept.size


class FillPlugin(ScalePlugin):
    """A tensor of the shape that a shape input says, filled with the mean of x."""

    formats = (dt.TensorFormat.LINEAR,)
    tactics = ()

    def __init__(self, factor: float = 1.0, calls: Calls | None = None) -> None:
        super().__init__(factor, calls)
        self.plugin_name = "TestFill"

    def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
        return [dt.DimsExprs(list(shape_inputs[0]))]

    def enqueue(
        self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int
    ) -> None:
        self.note("enqueue", tuple(output_desc[0].dims))
        as_array(outputs[0], output_desc[0])[...] = as_array(inputs[0], input_desc[0]).mean() * self.factor
