"""R14: Inputs and outputs must differ, and may not."""

from __future__ import annotations

from typing import Any

from dovetail.types import DataType
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class AcceptsNothing(Layer):
    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> Any:
        desc = in_out[pos].desc
        return desc.type == DataType.FLOAT and (pos == 0 or desc.type != in_out[0].desc.type)


creator = LayerCreator(AcceptsNothing)
