"""The memory layouts: what a tensor of each format looks like, and how to bring one into another.

A tensor has logical dims, always in the order batch, channels, depth, height, width. Its format says how they lie in
memory. *Vector-major* formats (CHW2, CHW4, CHW16, CHW32, CDHW32) cut the channels into vectors of V and put a vector's
lanes last; *vector-minor* formats (HWC, HWC8, HWC16, DHWC, DHWC8) put all channels last, padded to a multiple of V.
Padding is zero bytes. Four-bit elements take a byte each in an array, and half a byte in memory that a plan sizes:
``pack_nibbles`` and ``unpack_nibbles`` go between the two.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from dovetail._nibbles import split_nibbles
from dovetail.element_types import names_of
from dovetail.errors import UsageError
from dovetail.types import DataType, Dims, TensorFormat

__all__ = [
    "FOUR_BIT_TYPES",
    "formats_for",
    "pack",
    "pack_nibbles",
    "packed_shape",
    "reformat",
    "size_bytes",
    "stored_size_bytes",
    "unpack",
    "unpack_nibbles",
]

Array = npt.NDArray[Any]

FOUR_BIT_TYPES: Final = frozenset(names_of("int", "uint", "float", bits=4))
"""Types stored two elements to a byte."""


@dataclass(frozen=True)
class _PackedLayout:
    """How a format places the channels: which axis they are, how many make a vector, where the lanes go."""

    axis: int
    lanes: int
    is_major: bool = False


_LAYOUTS: Final[dict[TensorFormat, _PackedLayout]] = {
    TensorFormat.CHW2: _PackedLayout(-3, 2, is_major=True),
    TensorFormat.HWC8: _PackedLayout(-3, 8),
    TensorFormat.CHW4: _PackedLayout(-3, 4, is_major=True),
    TensorFormat.CHW16: _PackedLayout(-3, 16, is_major=True),
    TensorFormat.CHW32: _PackedLayout(-3, 32, is_major=True),
    TensorFormat.DHWC8: _PackedLayout(-4, 8),
    TensorFormat.CDHW32: _PackedLayout(-4, 32, is_major=True),
    TensorFormat.HWC: _PackedLayout(-3, 1),
    TensorFormat.DLA_HWC4: _PackedLayout(-3, 4),
    TensorFormat.HWC16: _PackedLayout(-3, 16),
    TensorFormat.DHWC: _PackedLayout(-4, 1),
}

_PLANES: Final[dict[DataType, tuple[TensorFormat, ...]]] = {
    DataType.FLOAT: (TensorFormat.CHW32, TensorFormat.HWC),
    DataType.HALF: (
        TensorFormat.CHW2,
        TensorFormat.HWC8,
        TensorFormat.CHW4,
        TensorFormat.HWC16,
        TensorFormat.CHW16,
        TensorFormat.CHW32,
    ),
    DataType.INT8: (TensorFormat.CHW4, TensorFormat.CHW32, TensorFormat.HWC16),
    DataType.BF16: (TensorFormat.CHW2, TensorFormat.HWC8),
    DataType.FP8: (TensorFormat.HWC16,),
    DataType.UINT8: (TensorFormat.HWC,),
}
"""Formats over height and width, in the order they are proposed: those that are seen everywhere first."""
_VOLUMES: Final[dict[DataType, tuple[TensorFormat, ...]]] = {
    DataType.FLOAT: (TensorFormat.DHWC,),
    DataType.HALF: (TensorFormat.DHWC8, TensorFormat.CDHW32),
    DataType.INT8: (TensorFormat.CDHW32,),
    DataType.BF16: (TensorFormat.DHWC8,),
}
"""Formats over depth, height and width."""
_DLA_ROW_BITS: Final = 64 * 8
_DLA_IMAGE_CHANNELS: Final = (1, 3, 4)


def formats_for(dtype: DataType, rank: int) -> tuple[TensorFormat, ...]:
    """The formats that are proposed for a tensor, in the order they are proposed.

    From rank 5 on a tensor has depth, and the formats are those over depth, height and width. Those of a DLA are never
    proposed, as no provider has one.

    >>> [f.name for f in formats_for(DataType.FLOAT, 4)]
    ['LINEAR', 'CHW32', 'HWC']
    >>> [f.name for f in formats_for(DataType.HALF, 5)], [f.name for f in formats_for(DataType.HALF, 2)]
    (['LINEAR', 'DHWC8', 'CDHW32'], ['LINEAR'])
    """
    found = [TensorFormat.LINEAR]
    if rank >= 3:
        found += (_PLANES if rank < 5 else _VOLUMES).get(dtype, ())
    return tuple(found)


def packed_shape(
    dims: Dims | Iterable[int],
    format: TensorFormat,  # noqa: A002 - the contract's name
    dtype: DataType | None = None,
) -> tuple[int, ...]:
    """The shape of the array that holds a tensor of these logical dims; only DLA_LINEAR depends on the type.

    >>> packed_shape((1, 3, 4, 5), TensorFormat.CHW32)
    (1, 1, 4, 5, 32)
    >>> packed_shape((1, 3, 4, 5), TensorFormat.HWC8)
    (1, 4, 5, 8)
    """
    shape = tuple(dims)
    if shape and min(shape) < 0:
        raise UsageError(
            "dims are not all known", got=shape, fix="replace every -1 by the actual size before laying memory out"
        )
    if format == TensorFormat.LINEAR:
        return shape
    if format == TensorFormat.DLA_LINEAR:
        if dtype is None:
            raise UsageError("the shape of DLA_LINEAR depends on the element type", fix="pass dtype=")
        return _dla_linear_shape(shape, dtype.bits)
    if format == TensorFormat.DLA_HWC4:
        return _dla_image_shape(shape)
    layout = _layout_of(format, shape)
    axis, vectors = layout.axis, -(-shape[layout.axis] // layout.lanes)
    before, after = shape[:axis], shape[axis + 1 :]
    if layout.is_major:
        return (*before, vectors, *after, layout.lanes)
    return (*before, *after, vectors * layout.lanes)


def _layout_of(format: TensorFormat, shape: tuple[int, ...]) -> _PackedLayout:  # noqa: A002 - the contract's name
    layout = _LAYOUTS.get(format)
    if layout is None:
        raise UsageError("unknown tensor format", got=format, expected=", ".join(f.name for f in TensorFormat))
    _require_rank(format, shape, -layout.axis)
    return layout


def _require_rank(format: TensorFormat, shape: tuple[int, ...], rank: int) -> None:  # noqa: A002
    if len(shape) < rank:
        raise UsageError(
            f"format {TensorFormat(format).name} needs at least {rank} dims",
            got=shape,
            fix="use LINEAR for tensors of lower rank",
        )


def _dla_linear_shape(shape: tuple[int, ...], bits: int) -> tuple[int, ...]:
    _require_rank(TensorFormat.DLA_LINEAR, shape, 3)
    per_row = _DLA_ROW_BITS // bits
    return (*shape[:-1], -(-shape[-1] // per_row) * per_row)


def _dla_image_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    _require_rank(TensorFormat.DLA_HWC4, shape, 3)
    channels = shape[-3]
    if channels not in _DLA_IMAGE_CHANNELS:
        raise UsageError("DLA_HWC4 holds images", expected="1, 3 or 4 channels", got=channels)
    return (*shape[:-3], *shape[-2:], 1 if channels == 1 else 4)


def size_bytes(
    dims: Dims | Iterable[int],
    dtype: DataType,
    format: TensorFormat = TensorFormat.LINEAR,  # noqa: A002 - the contract's name
) -> int:
    """Bytes that a tensor takes in memory, padding included; four-bit elements take half a byte.

    >>> size_bytes((1, 3, 2, 2), DataType.INT8, TensorFormat.CHW4), size_bytes((3,), DataType.INT4)
    (16, 2)
    """
    return (math.prod(packed_shape(dims, format, dtype)) * dtype.bits + 7) // 8


def pack(array: Array, format: TensorFormat, *, out: Array | None = None) -> Array:  # noqa: A002 - the contract's name
    """Lay a tensor out in a format, into ``out`` when it is given.

    Without ``out``, a LINEAR result may be the array itself; every other result is new.

    >>> pack(np.arange(3).reshape(3, 1, 1), TensorFormat.HWC8).tolist()
    [[[0, 1, 2, 0, 0, 0, 0, 0]]]
    """
    if format == TensorFormat.LINEAR and out is None:
        return np.asarray(array, order="C")  # ascontiguousarray would give a 0-D array a dimension
    target = _target(out, _physical_shape(array.shape, format, array.dtype), array.dtype)
    layout = _LAYOUTS.get(format)
    if layout is not None and layout.is_major:
        _pack_major(array, target, layout)
    else:
        _fill_padded(array if layout is None else np.moveaxis(array, layout.axis, -1), target)
    return target


def unpack(
    packed: Array,
    format: TensorFormat,  # noqa: A002 - the contract's name
    dims: Dims | Iterable[int],
    *,
    out: Array | None = None,
) -> Array:
    """Bring a tensor of logical ``dims`` out of a format, into ``out`` when it is given.

    Without ``out``, a LINEAR result may be the array itself; every other result is new.

    >>> unpack(np.arange(8).reshape(1, 1, 8), TensorFormat.HWC8, (3, 1, 1)).tolist()
    [[[0]], [[1]], [[2]]]
    """
    shape = tuple(dims)
    _require_packed(packed, format, shape)
    if format == TensorFormat.LINEAR and out is None:
        return np.asarray(packed, order="C")
    target = _target(out, shape, packed.dtype)
    layout = _LAYOUTS.get(format)
    if layout is not None and layout.is_major:
        _unpack_major(packed, target, layout)
    else:
        np.copyto(target, _logical_view(packed, format, shape))
    return target


def reformat(
    source: Array,
    source_format: TensorFormat,
    target_format: TensorFormat,
    dims: Dims | Iterable[int],
    *,
    out: Array | None = None,
) -> Array:
    """Bring a tensor of logical ``dims`` from one format into another, into ``out`` when it is given.

    >>> chw2 = pack(np.arange(3).reshape(3, 1, 1), TensorFormat.CHW2)
    >>> reformat(chw2, TensorFormat.CHW2, TensorFormat.HWC, (3, 1, 1)).tolist()
    [[[0, 1, 2]]]
    """
    shape = tuple(dims)
    if target_format == TensorFormat.LINEAR:
        return unpack(source, source_format, shape, out=out)
    _require_packed(source, source_format, shape)
    layout = _LAYOUTS.get(source_format)
    if layout is not None and layout.is_major:
        # Merging lanes with their vectors cannot be done with strides, so this one way takes two passes.
        return pack(unpack(source, source_format, shape), target_format, out=out)
    return pack(_logical_view(source, source_format, shape), target_format, out=out)


def _physical_shape(shape: tuple[int, ...], format: TensorFormat, dtype: np.dtype[Any]) -> tuple[int, ...]:  # noqa: A002
    """``packed_shape`` by a NumPy type, which need not be one of the contract's."""
    if format != TensorFormat.DLA_LINEAR:
        return packed_shape(shape, format)
    return _dla_linear_shape(shape, 4 if dtype.name in FOUR_BIT_TYPES else dtype.itemsize * 8)


def _target(out: Array | None, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    if out is None:
        return np.empty(shape, dtype)
    _require_shape(out, shape, "out")
    if out.dtype != dtype:
        raise UsageError("out has another type than the source", expected=dtype.name, got=out.dtype.name)
    return out


def _require_packed(array: Array, format: TensorFormat, shape: tuple[int, ...]) -> None:  # noqa: A002
    expected = _physical_shape(shape, format, array.dtype)
    _require_shape(array, expected, f"the {TensorFormat(format).name} array of a tensor {shape}")


def _require_shape(array: Array, shape: tuple[int, ...], name: str) -> None:
    if array.shape != shape:
        raise UsageError(f"{name} has the wrong shape", expected=shape, got=array.shape)


def _fill_padded(source: Array, target: Array) -> None:
    """Copy a source whose last axis may be shorter than the target's, and zero the rest."""
    if not source.ndim:
        target[...] = source
        return
    used = source.shape[-1]
    target[..., :used] = source
    if used != target.shape[-1]:
        target[..., used:] = _zero(target.dtype)


def _zero(dtype: np.dtype[Any]) -> Array:
    # Zero bytes, not the number zero: E8M0 has no zero.
    return np.zeros((), dtype)


def _logical_view(packed: Array, format: TensorFormat, shape: tuple[int, ...]) -> Array:  # noqa: A002
    """A view of a packed array with the logical shape; any format but the vector-major ones."""
    if format == TensorFormat.LINEAR:
        return packed
    if format == TensorFormat.DLA_LINEAR:
        return packed[..., : shape[-1]]
    axis = _LAYOUTS[format].axis
    return np.moveaxis(packed[..., : shape[axis]], -1, axis)


def _grouped(array: Array, layout: _PackedLayout, vectors: int) -> Array:
    """A view of the first ``vectors`` whole vectors of channels, lanes last."""
    before, after = array.shape[: layout.axis], array.shape[layout.axis + 1 :]
    whole = _channel_slice(array, layout, 0, vectors * layout.lanes)
    split = whole.reshape(*before, vectors, layout.lanes, *after)
    return np.moveaxis(split, layout.axis, -1)


def _channel_slice(array: Array, layout: _PackedLayout, start: int, stop: int) -> Array:
    index: tuple[Any, ...] = (..., slice(start, stop), *[slice(None)] * (-layout.axis - 1))
    part: Array = array[index]
    return part


def _pack_major(array: Array, target: Array, layout: _PackedLayout) -> None:
    vectors, rest = divmod(array.shape[layout.axis], layout.lanes)
    vector_axis = _PackedLayout(layout.axis - 1, layout.lanes)
    _channel_slice(target, vector_axis, 0, vectors)[...] = _grouped(array, layout, vectors)
    if rest:
        last = _channel_slice(target, vector_axis, vectors, vectors + 1)
        tail = _channel_slice(array, layout, vectors * layout.lanes, array.shape[layout.axis])
        _fill_padded(np.expand_dims(np.moveaxis(tail, layout.axis, -1), layout.axis - 1), last)


def _unpack_major(packed: Array, target: Array, layout: _PackedLayout) -> None:
    channels = target.shape[layout.axis]
    vectors, rest = divmod(channels, layout.lanes)
    vector_axis = _PackedLayout(layout.axis - 1, layout.lanes)
    np.copyto(_grouped(target, layout, vectors), _channel_slice(packed, vector_axis, 0, vectors))
    if rest:
        last = _channel_slice(packed, vector_axis, vectors, vectors + 1)[..., :rest]
        tail = _channel_slice(target, layout, vectors * layout.lanes, channels)
        np.copyto(tail, np.moveaxis(np.squeeze(last, layout.axis - 1), -1, layout.axis))


def pack_nibbles(array: Array, *, out: npt.NDArray[np.uint8] | None = None) -> npt.NDArray[np.uint8]:
    """Four-bit elements, which take a byte each in an array, as two a byte: the first in the low half.

    >>> pack_nibbles(np.array([1, -1, 7], DataType.INT4.numpy)).tolist()
    [241, 7]
    """
    if array.dtype.itemsize != 1:
        raise UsageError("nibbles come from one-byte elements", expected="int4, float4, int8 or uint8", got=array.dtype)
    codes = np.ascontiguousarray(array).reshape(-1).view(np.uint8) & 0x0F
    target = _target(out, ((codes.size + 1) // 2,), np.dtype(np.uint8))
    target[...] = codes[::2]
    target[: codes.size // 2] |= codes[1::2] << 4
    return target


def unpack_nibbles(packed: Any, dtype: DataType | np.dtype[Any], count: int) -> Array:
    r"""The first ``count`` four-bit elements of packed bytes, a byte each, in one dimension.

    >>> unpack_nibbles(b"\xf1\x07", DataType.INT4, 3).tolist()
    [1, -1, 7]
    """
    element = dtype.numpy if isinstance(dtype, DataType) else dtype
    if element.name not in FOUR_BIT_TYPES:
        raise UsageError("only four-bit types are packed in nibbles", expected="INT4 or FP4", got=element.name)
    data = packed.reshape(-1).view(np.uint8) if isinstance(packed, np.ndarray) else np.frombuffer(packed, np.uint8)
    if data.size * 2 < count:
        raise UsageError("too few bytes for the elements", expected=f"{(count + 1) // 2} bytes", got=data.size)
    return split_nibbles(data, count).view(element)


def stored_size_bytes(dtype: str, shape: Sequence[int]) -> int:
    """Bytes that an array takes where four-bit elements share bytes, as in plans and models.

    >>> stored_size_bytes("int4", (3,)), stored_size_bytes("float32", (2, 2))
    (2, 16)
    """
    count = math.prod(shape)
    return (count + 1) // 2 if dtype in FOUR_BIT_TYPES else count * np.dtype(dtype).itemsize
