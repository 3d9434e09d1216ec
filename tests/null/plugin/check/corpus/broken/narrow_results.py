"""R44: FLOAT is declared, half precision is written."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from dovetail.plugin.arrays import as_array
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class NarrowResults(Layer):
    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int) -> Any:
        raw = as_array(inputs[0], input_desc[0]).astype(np.float16).tobytes()
        ctypes.memmove(outputs[0], raw, len(raw))


creator = LayerCreator(NarrowResults)
