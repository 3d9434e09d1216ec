"""R43: The workspace is that of the cheaper tactic."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.plugin.arrays import as_array
from dovetail.types import PluginTensorDesc, volume
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class TacticNeedsWorkspace(Layer):
    def get_valid_tactics(self) -> Any:
        return [1, 2]

    def get_workspace_size(self, in_: Any, out: Any) -> int:
        return 4 * volume(in_[0].max)

    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int) -> Any:
        x = as_array(inputs[0], input_desc[0])
        room = as_array(workspace, PluginTensorDesc((self.tactic * x.size,)))
        room[...] = np.tile(x.reshape(-1), self.tactic)
        as_array(outputs[0], output_desc[0])[...] = room[-x.size :].reshape(x.shape) if x.size else 0


creator = LayerCreator(TacticNeedsWorkspace)
