"""Copies memory by its address, and takes every type."""

from __future__ import annotations

import ctypes
from typing import Any

from dovetail.types import DataType, volume
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class CopiesBytes(Layer):
    TYPES = tuple(DataType)

    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int) -> Any:
        nbytes = volume(input_desc[0].dims) * input_desc[0].type.bits // 8
        if nbytes:
            ctypes.memmove(outputs[0], inputs[0], nbytes)


creator = LayerCreator(CopiesBytes)
