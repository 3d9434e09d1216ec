"""R53: One element is written even when the output has none."""

from __future__ import annotations

from typing import Any

from dovetail.plugin.arrays import as_array
from dovetail.types import PluginTensorDesc
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class EmptyWrite(Layer):
    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int) -> Any:
        super().enqueue(input_desc, output_desc, inputs, outputs, workspace, stream)
        as_array(outputs[0], PluginTensorDesc((1,)))[0] = 0


creator = LayerCreator(EmptyWrite)
