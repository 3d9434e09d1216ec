"""R64 R44: The array over the output is made once for a shape."""

from __future__ import annotations

from typing import Any

from dovetail.plugin.arrays import as_array
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class StaleOutput(Layer):
    y: Any = None

    def on_shape_change(self, in_: Any, out: Any) -> Any:
        self.y = None

    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int) -> Any:
        if self.y is None:
            self.y = as_array(outputs[0], output_desc[0])
        self.y[...] = as_array(inputs[0], input_desc[0]) * 2


creator = LayerCreator(StaleOutput)
