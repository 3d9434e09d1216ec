"""R48 R42 R44: What depends on the shape is worked out once."""

from __future__ import annotations

from typing import Any

from dovetail.plugin.arrays import as_array
from dovetail.types import PluginTensorDesc, volume
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class FirstShape(Layer):
    count: int | None = None

    def on_shape_change(self, in_: Any, out: Any) -> Any:
        if self.count is None:
            self.count = volume(in_[0].dims)

    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int) -> Any:
        x = as_array(inputs[0], PluginTensorDesc((self.count,)))
        as_array(outputs[0], PluginTensorDesc((self.count,)))[...] = x * 2


creator = LayerCreator(FirstShape)
