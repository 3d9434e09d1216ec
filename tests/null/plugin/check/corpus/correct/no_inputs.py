"""Makes numbers from nothing."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from dovetail.expr import DimsExprs
from dovetail.plugin.fields import PluginFieldType
from dovetail.types import DataType
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class NoInputs(Layer):
    FIELDS: ClassVar[dict[str, Any]] = {"count": (PluginFieldType.INT32, 6)}
    count: int

    def get_output_data_types(self, input_types: Any) -> Any:
        if input_types:
            raise ValueError("there are no inputs")
        return [DataType.FLOAT]

    def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
        return [DimsExprs([exprBuilder.constant(self.count)])]

    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> Any:
        return in_out[pos].desc.type == DataType.FLOAT

    def compute(self, *arrays: Any) -> None:
        arrays[0][...] = np.arange(self.count)


creator = LayerCreator(NoInputs)
