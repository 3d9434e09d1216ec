"""R42 R44 R63: A product with a bias reads the bias as if it had a row for each row."""

from __future__ import annotations

from typing import Any

from dovetail.expr import DimsExprs
from dovetail.plugin.arrays import as_array
from dovetail.types import PluginTensorDesc
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class BiasTooShort(Layer):
    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> Any:
        return num_inputs == 3 and super().supports_format_combination(pos, in_out, num_inputs)

    def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
        return [DimsExprs([inputs[0][0], inputs[1][1]])] if [len(i) for i in inputs] == [2, 2, 1] else []

    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int) -> Any:
        x, w, _, y = (
            as_array(address, desc)
            for address, desc in zip([*inputs, *outputs], [*input_desc, *output_desc], strict=True)
        )
        bias = as_array(inputs[2], PluginTensorDesc(y.shape))
        y[...] = x @ w + bias


creator = LayerCreator(BiasTooShort)
