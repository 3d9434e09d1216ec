"""Keeps the rank in get_output_shapes and uses it when asked for formats."""

from __future__ import annotations

from typing import Any

from dovetail.expr import DimsExprs
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class RememberedRank(Layer):
    rank = 0

    def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
        self.rank = len(inputs[0])
        return [DimsExprs(inputs[0])]

    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> Any:
        return self.rank > 0 and super().supports_format_combination(pos, in_out, num_inputs)


creator = LayerCreator(RememberedRank)
