"""R45: A sum is collected in a workspace that nobody cleared."""

from __future__ import annotations

from typing import Any

from dovetail.plugin.arrays import as_array
from dovetail.types import PluginTensorDesc
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class WorkspaceNotCleared(Layer):
    def get_workspace_size(self, in_: Any, out: Any) -> int:
        return 4

    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int) -> Any:
        x, total = as_array(inputs[0], input_desc[0]), as_array(workspace, PluginTensorDesc((1,)))
        total += x.sum()
        as_array(outputs[0], output_desc[0])[...] = x + total


creator = LayerCreator(WorkspaceNotCleared)
