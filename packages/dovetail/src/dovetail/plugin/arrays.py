"""Arrays over addresses: how a plugin on the CPU reads and writes the memory that ``enqueue`` hands it.

Everything here is a view. A view owns nothing: it is valid while the engine keeps the memory, which for the addresses
of ``enqueue`` is until ``enqueue`` returns. Copy what is to live longer.
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from dovetail.errors import PluginError, UsageError
from dovetail.formats import packed_shape, size_bytes
from dovetail.host_arrays import address_of as find_address
from dovetail.host_arrays import array_at
from dovetail.types import DataType, PluginTensorDesc, TensorFormat

__all__ = ["address_of", "as_array", "read_scalar", "write_scalar"]

Array = npt.NDArray[Any]


def as_array(address: int, desc: PluginTensorDesc, *, shape: Iterable[int] | None = None) -> Array:
    """A writable NumPy view of the tensor that a descriptor says is at an address.

    The view has the physical shape of the descriptor's format (see ``dovetail.formats.packed_shape``). INT4 and FP4
    come as one dimension of bytes with two elements each (see ``dovetail.formats.unpack_nibbles``). Nothing is copied
    and nothing is kept alive: the view is valid as long as the memory is.

    Args:
        address: Where the memory starts; 0 is allowed for a tensor without elements.
        desc: What is there.
        shape: The logical dims to use instead of ``desc.dims``, needed where those hold -1.

    >>> memory = np.zeros(6, np.float32)
    >>> as_array(address_of(memory), PluginTensorDesc((2, 3)))[1, 2] = 5
    >>> float(memory[5])
    5.0
    """
    dims = desc.dims[:] if shape is None else tuple(shape)
    physical, dtype, is_empty = _physical(dims, desc.type, desc.format)
    if shape is not None:
        _check_room(desc, physical)
    if is_empty:
        return np.empty(physical, dtype)
    if not address:
        raise PluginError("address 0 holds no elements", expected=f"memory for {desc}", got="a null address")
    return array_at(address, physical, dtype)


def _check_room(desc: PluginTensorDesc, physical: tuple[int, ...]) -> None:
    """A shape of the plugin's own must fit the memory: it was sized by the bound that the plan has."""
    room = desc.room if desc.type.bits >= 8 or desc.room is None else (desc.room + 1) // 2
    if room is not None and math.prod(physical) > room:
        raise PluginError(
            "the shape is larger than the memory at the address",
            expected=f"at most {desc.room} elements",
            got=physical,
            fix="declare a larger upper bound in get_output_shapes, or build the plan again",
        )


@functools.lru_cache(maxsize=4096)  # an engine sees few shapes, and this is called for each tensor of each run
def _physical(dims: tuple[int, ...], dtype: Any, format: Any) -> tuple[tuple[int, ...], np.dtype[Any], bool]:  # noqa: A002
    """The physical shape, the NumPy type, and whether there are no elements."""
    if not isinstance(dtype, DataType) or not isinstance(format, TensorFormat):
        raise PluginError(
            "a descriptor without type or format describes no memory", fix="use the descriptors of enqueue"
        )
    if any(n < 0 for n in dims):
        raise PluginError(
            "the shape is not known",
            expected="dims that are all zero or more",
            got=dims,
            fix="pass shape= with the actual dims; a data-dependent output has -1 where its size tensor decides",
        )
    if dtype.bits < 8:
        nbytes = size_bytes(dims, dtype, format)
        return (nbytes,), np.dtype(np.uint8), nbytes == 0
    shape = packed_shape(dims, format, dtype)
    return shape, dtype.numpy, math.prod(shape) == 0


def address_of(array: Array) -> int:
    """Where the first element of an array is; valid as long as the array is alive.

    >>> memory = np.zeros(4, np.int32)
    >>> address_of(memory[1:]) - address_of(memory)
    4
    """
    if not isinstance(array, np.ndarray):
        raise UsageError("only a NumPy array has an address here", got=type(array).__name__, fix="use np.asarray first")
    return find_address(array)


_SCALARS: Final[dict[DataType, Callable[[int], Any]]] = {
    DataType.FLOAT: ctypes.c_float.from_address,
    DataType.INT8: ctypes.c_int8.from_address,
    DataType.INT32: ctypes.c_int32.from_address,
    DataType.BOOL: ctypes.c_bool.from_address,
    DataType.UINT8: ctypes.c_uint8.from_address,
    DataType.INT64: ctypes.c_int64.from_address,
}


def read_scalar(address: int, dtype: DataType) -> int | float:
    """The one element at an address, for example a size tensor.

    >>> memory = np.array([7], np.int64)
    >>> read_scalar(address_of(memory), DataType.INT64)
    7
    """
    value: int | float = _scalar(address, dtype).value
    return value


def write_scalar(address: int, dtype: DataType, value: float) -> None:
    """Write one element at an address, for example a size tensor in ``enqueue``.

    >>> memory = np.zeros(1, np.int32)
    >>> write_scalar(address_of(memory), DataType.INT32, 9)
    >>> int(memory[0])
    9
    """
    slot = _scalar(address, dtype)
    number = value if dtype == DataType.FLOAT else int(value)
    slot.value = number
    if slot.value != number and dtype != DataType.FLOAT:
        raise PluginError(f"{number} does not fit in {dtype.name}", fix="declare the size tensor as INT64")


def _scalar(address: int, dtype: DataType) -> Any:
    if dtype not in _SCALARS:
        raise UsageError("no scalar access for this type", expected=", ".join(d.name for d in _SCALARS), got=dtype)
    if not address:
        raise PluginError("address 0 holds no scalar", expected=f"memory of one {dtype.name}", got="a null address")
    return _SCALARS[dtype](address)
