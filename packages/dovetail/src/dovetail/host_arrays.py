"""Arrays and addresses in memory of the host: where an array lies, and a view of what lies at an address."""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["address_of", "array_at"]

Array = npt.NDArray[Any]

# One buffer type serves every size: NumPy takes only as much of it as the shape needs. Making a ctypes type of the
# exact size for each call would take longer than all the rest.
_bytes_at: Final[Callable[[int], Any]] = (ctypes.c_char * (sys.maxsize // 2)).from_address


def array_at(address: int, shape: Sequence[int], dtype: Any) -> Array:
    """A view of memory, which it does not own; without elements, an array of its own.

    >>> memory = np.arange(4)
    >>> array_at(address_of(memory), (2, 2), memory.dtype).tolist()
    [[0, 1], [2, 3]]
    """
    if not math.prod(shape):
        return np.empty(shape, dtype)
    return np.ndarray(tuple(shape), dtype, _bytes_at(address))


def _address_by_attribute(array: Array) -> int:
    return array.ctypes.data


def _address_by_layout(array: Array) -> int:
    """Read the data pointer, which NumPy's stable ABI puts first after the object header: 0.2 us instead of 1.6."""
    return _pointer_at(id(array) + _HEADER_BYTES).value


_pointer_at: Final = ctypes.c_size_t.from_address
_HEADER_BYTES: Final = object.__basicsize__


def _choose_address_of() -> Callable[[Array], int]:
    if sys.implementation.name != "cpython" or ctypes.sizeof(ctypes.c_size_t) != ctypes.sizeof(ctypes.c_void_p):
        return _address_by_attribute
    probe = np.empty((3, 5), np.int32)
    views = (probe, probe[1:], probe[:, 2], np.array(0.5))
    agree = all(_address_by_layout(view) == view.ctypes.data for view in views)
    return _address_by_layout if agree else _address_by_attribute


address_of: Final = _choose_address_of()
"""Where the first element of a NumPy array is; valid as long as the array is alive."""
