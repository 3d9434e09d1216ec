"""What a JIT plugin's function gets: memory with a type and a shape, which array libraries take without a copy.

On the host a tensor has ``__array_interface__`` and DLPack, so NumPy and torch take it; on a device it has
``__cuda_array_interface__``, so cupy, torch and numba do. A tensor is valid until the function returns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from dovetail import DataType, PluginTensorDesc, TensorFormat
from dovetail.formats import packed_shape
from dovetail_tensorrt.trt.plugin.errors import DecoratorError

__all__ = ["Tensor", "make_tensor"]

_TYPES: Final = {
    DataType.FLOAT: "<f4",
    DataType.HALF: "<f2",
    DataType.INT8: "|i1",
    DataType.INT32: "<i4",
    DataType.INT64: "<i8",
    DataType.BOOL: "|b1",
    DataType.UINT8: "|u1",
}
_CHANNEL_LAST: Final = {
    TensorFormat.HWC: 3,
    TensorFormat.HWC8: 3,
    TensorFormat.HWC16: 3,
    TensorFormat.DHWC: 4,
    TensorFormat.DHWC8: 4,
}
"""Formats whose channels lie next to each other -> how far from the end the channel axis stands."""


class Tensor:
    """One input or output of a plugin while it runs."""

    def __init__(
        self,
        address: int,
        desc: PluginTensorDesc,
        shape: Sequence[int],
        stream: int = 0,
        *,
        is_data_dependent: bool = False,
        aliased_to: Tensor | None = None,
    ) -> None:
        self._address, self._desc, self._shape = int(address), desc, tuple(shape)
        self._stream, self._is_data_dependent, self._aliased_to = int(stream), is_data_dependent, aliased_to

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_"):
            raise DecoratorError(f"'{name}' of a tensor cannot be set", fix="write into the memory it stands for")
        super().__setattr__(name, value)

    @property
    def data_ptr(self) -> int:
        """The address of the first element."""
        return self._address

    @property
    def dtype(self) -> DataType:
        """The type."""
        dtype: DataType = self._desc.type
        return dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes; of an output whose size the plugin tells, the largest that it may tell."""
        return self._shape

    @property
    def format(self) -> TensorFormat:
        """The layout in memory."""
        layout: TensorFormat = self._desc.format
        return layout

    @property
    def scale(self) -> float:
        """The scale of an INT8 tensor; -1.0 for others."""
        return self._desc.scale

    @property
    def ndim(self) -> int:
        """How many dimensions there are."""
        return len(self._shape)

    @property
    def strides(self) -> tuple[int, ...]:
        """For each axis the elements between two neighbours; between two vectors where the format has vectors."""
        return _strides_of(self._shape, self.format, self.dtype)

    @property
    def is_data_dependent(self) -> bool:
        """Whether the plugin tells a size of it while it runs."""
        return self._is_data_dependent

    @property
    def is_aliased(self) -> bool:
        """Whether this is an output that shares memory with an input."""
        return self._aliased_to is not None

    def numel(self) -> int:
        """How many elements there are, or may be."""
        return math.prod(self._shape)

    def get_aliased(self) -> Tensor | None:
        """The input that this output shares memory with, if it does."""
        return self._aliased_to

    def aliased(self, shape: Sequence[int] | None = None) -> Tensor:
        """The same memory, with another shape of as many elements where one is given."""
        sizes = self._shape if shape is None else tuple(shape)
        if math.prod(sizes) > self.numel():
            raise DecoratorError(
                "the memory is smaller than that", expected=f"at most {self.numel()} elements", got=sizes
            )
        return type(self)(self._address, self._desc, sizes, self._stream, aliased_to=self)

    def _describe(self) -> dict[str, Any]:
        """What both array interfaces say."""
        if self.dtype not in _TYPES:
            raise DecoratorError(
                f"array libraries have no name for {self.dtype.name}",
                expected=", ".join(dtype.name for dtype in _TYPES),
                fix="use data_ptr and the shape",
            )
        size = self.dtype.itemsize or 1
        return {
            "shape": self._shape,
            "typestr": _TYPES[self.dtype],
            "data": (self._address if self.numel() else 0, False),
            "strides": tuple(int(step * size) for step in self.strides),
            "version": 3,
        }

    def __repr__(self) -> str:
        return f"Tensor({self._shape}, {self.dtype.name}, {self.format.name}, data_ptr={self._address:#x})"


class _TensorOnHost(Tensor):
    """A tensor in memory of the host."""

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return self._describe()

    def __dlpack__(self, **options: Any) -> Any:
        return np.asarray(self).__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


class _TensorOnDevice(Tensor):
    """A tensor in memory of a CUDA device."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        # 0 is forbidden there: 1 names the default stream.
        return {**self._describe(), "stream": self._stream or 1}


def make_tensor(address: int, desc: PluginTensorDesc, stream: int, *, aliased_to: Tensor | None = None) -> Tensor:
    """The tensor at an address, as large as it can be where the plugin tells its size."""
    kind = _TensorOnDevice if desc.is_on_device else _TensorOnHost
    sizes = tuple(desc.dims)
    is_data_dependent = -1 in sizes
    shape = _largest(sizes, desc.room) if is_data_dependent else sizes
    return kind(address, desc, shape, stream, is_data_dependent=is_data_dependent, aliased_to=aliased_to)


def _largest(sizes: tuple[int, ...], room: int | None) -> tuple[int, ...]:
    """The largest shape that fits the memory; in one dimension where several sizes are told."""
    if room is None:
        raise DecoratorError("the engine does not say how large the memory of an output is", got=sizes)
    known = math.prod(size for size in sizes if size != -1)
    if sizes.count(-1) > 1:
        return (room,)
    return tuple(room // known if size == -1 and known else max(size, 0) for size in sizes)


def _strides_of(shape: tuple[int, ...], layout: TensorFormat, dtype: DataType) -> tuple[int, ...]:
    """Strides in elements.

    >>> _strides_of((1, 3, 2, 2), TensorFormat.LINEAR, DataType.FLOAT)
    (12, 4, 2, 1)
    >>> _strides_of((1, 3, 2, 2), TensorFormat.HWC8, DataType.HALF)
    (32, 1, 16, 8)
    """
    if layout is TensorFormat.LINEAR:
        return _row_major(shape)
    physical = packed_shape(shape, layout, dtype)
    steps = _row_major(physical)
    if layout in _CHANNEL_LAST:
        axis = len(shape) - _CHANNEL_LAST[layout]
        return (*steps[:axis], steps[-1], *steps[axis:-1])
    return steps[: len(shape)]


def _row_major(shape: Sequence[int]) -> tuple[int, ...]:
    steps = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        steps[axis] = steps[axis + 1] * shape[axis + 1]
    return tuple(steps)
