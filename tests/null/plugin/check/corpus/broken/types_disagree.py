"""R15: The declared type of the output is not among the accepted ones."""

from __future__ import annotations

from typing import Any

from dovetail.types import DataType
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class TypesDisagree(Layer):
    def get_output_data_types(self, input_types: Any) -> Any:
        return [DataType.HALF]


creator = LayerCreator(TypesDisagree)
