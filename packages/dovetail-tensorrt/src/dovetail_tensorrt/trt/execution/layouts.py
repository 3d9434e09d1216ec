"""What vectorised formats mean for strides and descriptions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from dovetail import DataType, Dims, TensorFormat

__all__ = ["describe_format", "find_strides", "vector_length", "vectorized_dim"]


class _Layout(NamedTuple):
    from_end: int
    """The dimension that is split into vectors, counted from the end."""
    length: int
    is_minor: bool
    """Whether the vectors of all channels lie next to each other."""
    text: str


_LAYOUTS: Final = {
    TensorFormat.CHW2: _Layout(3, 2, is_minor=False, text="Two wide channel vectorized row major"),
    TensorFormat.CHW4: _Layout(3, 4, is_minor=False, text="Four wide channel vectorized row major"),
    TensorFormat.CHW16: _Layout(3, 16, is_minor=False, text="Sixteen wide channel vectorized row major"),
    TensorFormat.CHW32: _Layout(3, 32, is_minor=False, text="Thirty-two wide channel vectorized row major"),
    TensorFormat.CDHW32: _Layout(4, 32, is_minor=False, text="Thirty-two wide channel vectorized row major, 3D"),
    TensorFormat.HWC: _Layout(3, 1, is_minor=True, text="Channel major"),
    TensorFormat.HWC8: _Layout(3, 8, is_minor=True, text="Channel major, channels % 8 == 0"),
    TensorFormat.HWC16: _Layout(3, 16, is_minor=True, text="Channel major, channels % 16 == 0"),
    TensorFormat.DHWC: _Layout(4, 1, is_minor=True, text="Channel major, 3D"),
    TensorFormat.DHWC8: _Layout(4, 8, is_minor=True, text="Channel major, channels % 8 == 0, 3D"),
}
_TYPES: Final = {DataType.FLOAT: "FP32", DataType.HALF: "FP16"}


def vector_length(layout: TensorFormat) -> int:
    """How many elements a vector has; -1 where there are none."""
    found = _LAYOUTS.get(layout)
    return -1 if found is None or found.length == 1 else found.length


def vectorized_dim(layout: TensorFormat, rank: int) -> int:
    """The dimension that is split into vectors; -1 where none is."""
    found = _LAYOUTS.get(layout)
    return -1 if found is None or found.length == 1 else rank - found.from_end


def describe_format(layout: TensorFormat, dtype: DataType) -> str:
    """A format in words."""
    found = _LAYOUTS.get(layout)
    text = "Row major linear" if found is None else found.text
    return f"{text} {_TYPES.get(dtype, dtype.name)} format (k{layout.name})"


def find_strides(shape: Sequence[int], layout: TensorFormat) -> Dims:
    """The distance of neighbours in each dimension, in elements, or in vectors where the format has some.

    >>> tuple(find_strides((2, 3, 4, 5), TensorFormat.LINEAR)), tuple(find_strides((2, 3, 4, 5), TensorFormat.HWC))
    ((60, 20, 5, 1), (60, 1, 15, 3))
    """
    found, sizes = _LAYOUTS.get(layout), list(shape)
    order = list(range(len(sizes)))
    if found is not None:
        channel = len(sizes) - found.from_end
        sizes[channel] = -(-sizes[channel] // found.length)
        if found.is_minor:
            order.remove(channel)
            order.append(channel)
    strides, step = [0] * len(sizes), 1
    for axis in reversed(order):
        strides[axis], step = step, step * max(sizes[axis], 1)
    return Dims(strides)
