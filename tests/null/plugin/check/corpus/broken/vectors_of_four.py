"""R42 R63: The length is rounded up to whole vectors."""

from __future__ import annotations

from typing import Any

from dovetail.plugin.arrays import as_array
from dovetail.types import PluginTensorDesc, volume
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class VectorsOfFour(Layer):
    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int) -> Any:
        count = -(-volume(input_desc[0].dims) // 4) * 4
        desc = PluginTensorDesc((count,))
        as_array(outputs[0], desc)[...] = as_array(inputs[0], desc) * 2


creator = LayerCreator(VectorsOfFour)
