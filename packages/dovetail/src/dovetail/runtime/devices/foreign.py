"""Arrays of other libraries by CUDA's array interface: read once, and checked before anything uses them.

The interface is a property of somebody else's class. It may raise, as PyTorch's does for a tensor with a gradient, and
what it gives may be anything.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from dovetail.errors import InputError
from dovetail.provider.calls import first_line

__all__ = ["CudaInterface", "read_interface", "refused_by_maker", "suggest_sharing"]

_NAME: Final = "__cuda_array_interface__"


@dataclass(frozen=True, kw_only=True)
class CudaInterface:
    """An array as CUDA's interface describes it."""

    address: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    strides: tuple[int, ...] | None
    is_read_only: bool
    stream: int | None

    def require_rows(self, where: str) -> None:
        """Refuse elements that do not lie row by row."""
        expected = self.dtype.itemsize
        for size, stride in zip(reversed(self.shape), reversed(self.strides or ()), strict=False):
            if size > 1 and stride != expected:
                raise InputError("its elements do not lie row by row", where=where, fix="make it contiguous first")
            expected *= size


def read_interface(value: Any, where: str) -> CudaInterface | None:
    """What an object says of itself; None when it has no such interface.

    Raises:
        InputError: Reading it raised, what it says makes no sense, or its memory is at address 0.
    """
    try:
        found = getattr(value, _NAME, None)
    except Exception as error:
        raise refused_by_maker(value, _NAME, error, where) from error
    if found is None:
        return None
    try:
        interface = _parse(found)
    except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
        raise InputError(f"its {_NAME} cannot be read: {first_line(error)}", where=where) from error
    num_elements = math.prod(interface.shape)
    if num_elements and not interface.address:
        raise InputError("its memory is at address 0", where=where, got=f"{interface.shape} of {interface.dtype}")
    return interface


def _parse(found: Mapping[str, Any]) -> CudaInterface:
    address, is_read_only = found["data"]
    shape, strides, stream = tuple(map(int, found["shape"])), found.get("strides"), found.get("stream")
    if min(shape, default=0) < 0 or int(address) < 0:
        raise ValueError("a size or an address below 0")
    if strides is not None and len(strides) != len(shape):
        raise ValueError(f"{len(strides)} strides for {len(shape)} dimensions")
    return CudaInterface(
        address=int(address),
        shape=shape,
        dtype=np.dtype(found["typestr"]),
        strides=None if strides is None else tuple(map(int, strides)),
        is_read_only=bool(is_read_only),
        stream=None if stream is None else int(stream),
    )


def refused_by_maker(value: Any, name: str, error: Exception, where: str) -> InputError:
    """The error for an array whose own class does not hand it out."""
    return InputError(
        f"its {name} raised {type(error).__name__}: {first_line(error)}",
        where=where,
        got=f"an object of {type(value).__module__}.{type(value).__qualname__}",
        fix=suggest_sharing(value),
    )


def suggest_sharing(value: Any) -> str:
    """What to pass in place of an array whose memory cannot be shared."""
    has_gradient = getattr(value, "requires_grad", False) is True
    return "pass x.detach(): results have no gradient" if has_gradient else "pass a plain, dense copy of it"
