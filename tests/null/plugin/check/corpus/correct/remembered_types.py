"""Keeps its types in get_output_data_types and uses them when asked for formats."""

from __future__ import annotations

from typing import Any

from dovetail.types import DataType, TensorFormat
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class RememberedTypes(Layer):
    types: Any = None

    def get_output_data_types(self, input_types: Any) -> Any:
        self.types = [*input_types, input_types[0]]
        return [input_types[0]]

    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> Any:
        desc = in_out[pos].desc
        return desc.type == self.types[pos] == DataType.FLOAT and desc.format == TensorFormat.LINEAR


creator = LayerCreator(RememberedTypes)
