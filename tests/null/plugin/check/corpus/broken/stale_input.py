"""R64: The array over the input is made once."""

from __future__ import annotations

from typing import Any

from dovetail.plugin.arrays import as_array
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class StaleInput(Layer):
    x: Any = None

    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int) -> Any:
        if self.x is None or self.x.shape != tuple(input_desc[0].dims):
            self.x = as_array(inputs[0], input_desc[0])
        as_array(outputs[0], output_desc[0])[...] = self.x * 2


creator = LayerCreator(StaleInput)
