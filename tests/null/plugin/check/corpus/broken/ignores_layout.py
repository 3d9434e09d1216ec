"""R51: HWC is accepted and worked on as if it were LINEAR."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.plugin.arrays import as_array
from dovetail.types import PluginTensorDesc, TensorFormat
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class IgnoresLayout(Layer):
    FORMATS = (TensorFormat.LINEAR, TensorFormat.HWC)

    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int) -> Any:
        dims = input_desc[0].dims[:]
        x, y = (as_array(a[0], PluginTensorDesc(dims)) for a in (inputs, outputs))
        channels = dims[-3] if len(dims) > 2 else 1
        y[...] = x + np.arange(channels, dtype=np.float32).reshape(-1, 1, 1) if len(dims) > 2 else x


creator = LayerCreator(IgnoresLayout)
