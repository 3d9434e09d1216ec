"""Tensors by address: views of the memory that callers give, for the shapes of one bound run.

A caller whose buffers change from run to run gives few addresses again and again. The views over them are kept, so that
another address makes nothing new. A view owns nothing: for whatever lies at its address by then it is as good as a new
one, and no memory of a caller lives longer because of it.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from dovetail.formats import FOUR_BIT_TYPES
from dovetail.plan.manifest import TensorRecord
from dovetail.runtime.bind.arrays import PackedMemory, array_in
from dovetail.runtime.devices.streams import ContextDevices
from dovetail.runtime.steps.base import Array
from dovetail.runtime.steps.frame import Shape

__all__ = ["TensorViews"]

_MAX_VIEWS: Final = 128
"""Addresses that are remembered; a caller with ever new ones must not make a bound run grow."""


class TensorViews(dict[int, Any]):
    """One input or output of a bound run: the array at each address; None when the shape is not known before the run.

    Args:
        tensor: The input or output.
        shape: Its physical shape; None when only the run tells.
        devices: The devices of the context, for a tensor in the memory of one.
    """

    __slots__ = ("_check", "_dtype", "_memory", "_provider", "_shape", "_where", "has_shape", "is_packed")

    def __init__(self, tensor: TensorRecord, shape: Shape | None, devices: ContextDevices) -> None:
        super().__init__()
        self._where = f"tensor '{tensor.name}'"
        self._dtype = np.dtype(tensor.dtype)
        self._memory = tensor.memory
        self._provider = devices.providers[tensor.memory] if tensor.memory else None
        self._check = devices.check_address
        self._shape = shape
        self.has_shape = shape is not None
        """Whether the shape is known before the run."""
        self.is_packed = not tensor.type and tensor.dtype in FOUR_BIT_TYPES
        """Whether two elements share a byte of the caller's memory."""

    def __missing__(self, address: int) -> Any | None:
        """Make the view at an address that is not remembered."""
        if self._check is not None:
            self._check(self._memory, address, self._where)
        if self._shape is None:
            return None
        if self.is_packed:  # its bytes are read and written around a run, so it is made for each
            return PackedMemory(address, self._shape, self._dtype).read()
        view = array_in(self._provider, address, self._shape, self._dtype, where=self._where)
        if len(self) >= _MAX_VIEWS:
            self.clear()
        self[address] = view
        return view

    def pack(self, address: int, array: Array) -> None:
        """Bring elements that share bytes into the caller's memory, after a run."""
        PackedMemory(address, array.shape, self._dtype).write(array)
