"""Arrays of the host to and from other libraries by DLPack, of every type, without a copy.

NumPy's own exchange knows NumPy's types only; bfloat16 and the types of eight bits are those of ml_dtypes.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from dovetail.dlpack import ImportedTensor, export_dlpack, import_dlpack
from dovetail.errors import UsageError
from dovetail.host_arrays import address_of

__all__ = ["DlpackArray", "as_dlpack", "view_dlpack"]

Array = npt.NDArray[Any]

_HOST: Final = (1, 0)
"""DLPack's type and number of the device whose memory this is."""


class DlpackArray:
    """An array of the host as other libraries import it: ``torch.from_dlpack(as_dlpack(array))``."""

    __slots__ = ("array",)

    def __init__(self, array: Array) -> None:
        self.array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return _HOST

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        if dl_device not in (None, _HOST):
            raise BufferError("the array lies on the host")
        array = self.array.copy() if copy else self.array
        return export_dlpack(
            address_of(array),
            array.shape,
            array.dtype,
            _HOST,
            array,
            max_version=max_version,
            strides=_count_strides(array),
            is_read_only=not array.flags.writeable,
        )


def as_dlpack(array: Array) -> DlpackArray:
    """An array, such as a result of an engine, for any library that imports DLPack; its memory is shared.

    >>> np.from_dlpack(as_dlpack(np.arange(3))).tolist()
    [0, 1, 2]

    Raises:
        UsageError: It is no array of NumPy.
    """
    if not isinstance(array, np.ndarray):
        raise UsageError("not an array", where="as_dlpack", expected="a NumPy array", got=type(array).__name__)
    return DlpackArray(array)


def _count_strides(array: Array) -> tuple[int, ...] | None:
    """The strides in elements; None for row by row."""
    if array.flags.c_contiguous:
        return None
    if any(stride % array.itemsize for stride in array.strides):
        raise BufferError("its elements do not lie a whole number of elements apart: pass a copy")
    return tuple(stride // array.itemsize for stride in array.strides)


class _SharedMemory:
    """What NumPy makes an array of without a copy, and keeps for as long as the array lives."""

    def __init__(self, tensor: ImportedTensor) -> None:
        size = tensor.dtype.itemsize
        self._tensor = tensor
        self.__array_interface__ = {
            "version": 3,
            "shape": tensor.shape,
            # Types of ml_dtypes have no name here, so the bytes are shared as another type of that size.
            "typestr": f"|V{size}",
            "data": (tensor.address, tensor.is_read_only),
            "strides": None if tensor.strides is None else tuple(stride * size for stride in tensor.strides),
        }


def view_dlpack(value: Any) -> Array:
    """An array over the memory of an object with ``__dlpack__``, of any type that DLPack has, without a copy.

    Raises:
        InputError: It gives no capsule, or a type that arrays do not have.
    """
    tensor = import_dlpack(value, any_strides=True)
    if not math.prod(tensor.shape):
        return np.empty(tensor.shape, tensor.dtype)
    return np.asarray(_SharedMemory(tensor)).view(tensor.dtype)
