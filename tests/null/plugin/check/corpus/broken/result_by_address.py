"""R47: A result is looked up by the address of the input."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.plugin.arrays import as_array
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class ResultByAddress(Layer):
    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self.results: dict[int, Any] = {}

    def clone(self) -> Any:
        twin = super().clone()
        twin.results = {}
        return twin

    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int) -> Any:
        key = inputs[0] + sum(input_desc[0].dims)
        if key not in self.results:
            self.results[key] = np.exp(as_array(inputs[0], input_desc[0]))
        as_array(outputs[0], output_desc[0])[...] = self.results[key]


creator = LayerCreator(ResultByAddress)
