"""R43: The workspace is sized for the shape that is tuned for."""

from __future__ import annotations

from typing import Any

from dovetail.plugin.arrays import as_array
from dovetail.types import volume
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class WorkspaceOfOpt(Layer):
    def get_workspace_size(self, in_: Any, out: Any) -> int:
        return 4 * volume(in_[0].opt)

    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int) -> Any:
        room = as_array(workspace, input_desc[0])
        room[...] = as_array(inputs[0], input_desc[0])
        as_array(outputs[0], output_desc[0])[...] = room * 2


creator = LayerCreator(WorkspaceOfOpt)
