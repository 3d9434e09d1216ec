"""Two inputs, and the first is updated in place where the second says."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.plugin.arrays import as_array
from dovetail.plugin.interfaces import IPluginV3OneBuildV2
from dovetail.types import DataType, TensorFormat
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class ScatterInPlace(Layer, IPluginV3OneBuildV2):
    def get_aliased_input(self, output_index: int) -> int:
        return 0

    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> Any:
        wanted = DataType.INT32 if pos == 1 else DataType.FLOAT
        return num_inputs == 2 and (in_out[pos].desc.type, in_out[pos].desc.format) == (wanted, TensorFormat.LINEAR)

    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int) -> Any:
        x = as_array(inputs[0], input_desc[0]).reshape(-1)
        index = as_array(inputs[1], input_desc[1]).reshape(-1)
        if x.size:
            np.add.at(x, index, np.float32(1))


creator = LayerCreator(ScatterInPlace)
