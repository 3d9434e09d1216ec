"""R43: The workspace is asked for in elements, not in bytes."""

from __future__ import annotations

from typing import Any

from dovetail.plugin.arrays import as_array
from dovetail.types import volume
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class WorkspaceInElements(Layer):
    def get_workspace_size(self, in_: Any, out: Any) -> int:
        return volume(in_[0].max)

    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int) -> Any:
        room = as_array(workspace, input_desc[0])
        room[...] = as_array(inputs[0], input_desc[0])
        as_array(outputs[0], output_desc[0])[...] = room * 2


creator = LayerCreator(WorkspaceInElements)
