"""Has three tactics that need different workspaces."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.plugin.arrays import as_array
from dovetail.types import PluginTensorDesc, volume
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class ThreeTactics(Layer):
    def get_valid_tactics(self) -> Any:
        return [7, 11, 13]

    def get_workspace_size(self, in_: Any, out: Any) -> int:
        return {7: 0, 11: 4, 13: 8}.get(self.tactic, 8) * volume(in_[0].max)

    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int) -> Any:
        x, y = as_array(inputs[0], input_desc[0]), as_array(outputs[0], output_desc[0])
        if self.tactic == 7:
            y[...] = x * 2
        elif self.tactic == 11:
            room = as_array(workspace, input_desc[0])
            np.multiply(x, 2, out=room)
            y[...] = room
        else:
            room = as_array(workspace, PluginTensorDesc((2, x.size)))
            room[...] = x.reshape(-1)
            y[...] = room.sum(0).reshape(x.shape)


creator = LayerCreator(ThreeTactics)
