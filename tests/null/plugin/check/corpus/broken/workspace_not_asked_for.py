"""R43 R52: A workspace is used and not asked for."""

from __future__ import annotations

from typing import Any

from dovetail.plugin.arrays import as_array
from dovetail.types import PluginTensorDesc
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class WorkspaceNotAskedFor(Layer):
    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int) -> Any:
        room = as_array(workspace, PluginTensorDesc((4,)))
        room[...] = 1
        as_array(outputs[0], output_desc[0])[...] = as_array(inputs[0], input_desc[0]) * room[0]


creator = LayerCreator(WorkspaceNotAskedFor)
