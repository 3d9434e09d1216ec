"""R63: The difference to the next element looks beyond the last one."""

from __future__ import annotations

from typing import Any

from dovetail.plugin.arrays import as_array
from dovetail.types import PluginTensorDesc, volume
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class ForwardDifference(Layer):
    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int) -> Any:
        count = volume(input_desc[0].dims)
        x = as_array(inputs[0], PluginTensorDesc((count + 1,)))
        as_array(outputs[0], PluginTensorDesc((count,)))[...] = x[1:] - x[:-1]


creator = LayerCreator(ForwardDifference)
