"""Parts of a tensor and frames around it: Slice, Pad, CenterCropPad, Trilu and ReverseSequence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dovetail.providers.cpu._numeric import Array
from dovetail.providers.cpu.kernels._checks import normalize_axes, read_scalar, require, require_room
from dovetail.providers.cpu.registry import kernel

__all__ = ["center_crop_pad", "pad", "pad_attribute", "reverse_sequence", "slice_attribute", "slice_of", "trilu"]


@kernel("Slice", since=1, until=9)
def slice_attribute(
    data: Array, *, axes: Sequence[int] | None = None, ends: Sequence[int], starts: Sequence[int]
) -> Array:
    """Slice with everything as attributes."""
    return slice_of(data, np.asarray(starts), np.asarray(ends), None if axes is None else np.asarray(axes))


@kernel("Slice", since=10)
def slice_of(data: Array, starts: Array, ends: Array, axes: Array | None = None, steps: Array | None = None) -> Array:
    """The elements from start to end by step along each axis; bounds past an edge stop there."""
    op = "Slice"
    where = range(starts.size) if axes is None else axes.reshape(-1).tolist()
    chosen = normalize_axes(op, where, data.ndim)
    strides = np.ones(starts.size, dtype=np.int64) if steps is None else steps
    lengths = (len(chosen), starts.size, ends.size, strides.size)
    require(len(set(lengths)) == 1, op, "starts, ends, axes and steps differ in length", got=lengths)
    require(bool((strides != 0).all()), op, "'steps' must not be zero")
    parts: list[Any] = [slice(None)] * data.ndim
    bounds = zip(starts.reshape(-1).tolist(), ends.reshape(-1).tolist(), strides.reshape(-1).tolist(), strict=True)
    for axis, (start, end, step) in zip(chosen, bounds, strict=True):
        parts[axis] = _clamp(start, end, step, data.shape[axis])
    # The ellipsis keeps a tensor without axes an array.
    part: Array = data[..., *parts]
    return part.copy()


def _clamp(start: int, end: int, step: int, size: int) -> slice:
    """A slice with its bounds clamped as ONNX has it: a backward start never lies before the first element."""
    if size == 0:
        return slice(0, 0)
    first = start + size if start < 0 else start
    last = end + size if end < 0 else end
    if step > 0:
        return slice(min(max(first, 0), size), min(max(last, 0), size), step)
    first, last = min(max(first, 0), size - 1), min(max(last, -1), size - 1)
    # To Python, -1 is the last element and not the place before the first.
    return slice(first, None if last < 0 else last, step)


@kernel("Pad", since=2, until=10)
def pad_attribute(data: Array, *, mode: str = "constant", pads: Sequence[int], value: float = 0.0) -> Array:
    """Pad with everything as attributes."""
    return pad(data, np.asarray(pads), np.asarray(value).astype(data.dtype), mode=mode)


@kernel("Pad", since=11)
def pad(
    data: Array,
    pads: Array,
    constant_value: Array | None = None,
    axes: Array | None = None,
    *,
    mode: str = "constant",
) -> Array:
    """Surround with a constant, the edge, a mirror image or the other side; a negative count cuts off."""
    op = "Pad"
    modes = ("constant", "reflect", "edge", "wrap")
    require(mode in modes, op, "'mode' is unknown", expected=", ".join(modes), got=mode)
    chosen = normalize_axes(op, None if axes is None else axes.reshape(-1).tolist(), data.ndim)
    require(pads.size == 2 * len(chosen), op, "'pads' has the wrong length", expected=2 * len(chosen), got=pads.size)
    amounts = [(0, 0)] * data.ndim
    for axis, begin, end in zip(chosen, *pads.reshape(2, -1).tolist(), strict=True):
        amounts[axis] = (begin, end)
    y = _crop(op, data, amounts)
    frame = [(max(begin, 0), max(end, 0)) for begin, end in amounts]
    require_room(op, _framed(y, frame), y.dtype)
    if mode == "constant":
        return _surround(y, frame, constant_value)
    for axis, amount in enumerate(frame):
        if any(amount):
            require(y.shape[axis] > 0, op, f"axis {axis} is empty and has no {mode} to pad with")
            y = np.take(y, np.pad(np.arange(y.shape[axis]), amount, mode=mode), axis=axis)  # type: ignore[call-overload]
    return y.copy()


def _crop(op: str, data: Array, amounts: list[tuple[int, int]]) -> Array:
    parts: list[Any] = []
    for size, (begin, end) in zip(data.shape, amounts, strict=True):
        low, high = max(-begin, 0), size - max(-end, 0)
        require(low <= high, op, "'pads' cut off more than there is", expected=f"<= {size}", got=(begin, end))
        parts.append(slice(low, high))
    return data[..., *parts]


def _framed(x: Array, frame: list[tuple[int, int]]) -> tuple[int, ...]:
    return tuple(begin + n + end for n, (begin, end) in zip(x.shape, frame, strict=True))


def _surround(x: Array, frame: list[tuple[int, int]], value: Array | None) -> Array:
    shape = _framed(x, frame)
    if value is None or value.size == 0:
        y = np.full(shape, "", dtype=object) if x.dtype == object else np.zeros(shape, dtype=x.dtype)
    else:
        y = np.full(shape, value.reshape(()), dtype=x.dtype)
    y[tuple(slice(begin, begin + n) for n, (begin, _) in zip(x.shape, frame, strict=True))] = x
    return y


@kernel("CenterCropPad", since=18)
def center_crop_pad(x: Array, shape: Array, *, axes: Sequence[int] | None = None) -> Array:
    """Cut or pad with zeros to these sizes, keeping the middle."""
    op = "CenterCropPad"
    chosen = normalize_axes(op, axes, x.ndim)
    sizes = [int(n) for n in shape.reshape(-1)]
    require(len(sizes) == len(chosen), op, "'shape' has the wrong length", expected=len(chosen), got=len(sizes))
    require(min(sizes, default=0) >= 0, op, "'shape' must not be negative", got=sizes)
    amounts = [(0, 0)] * x.ndim
    require_room(op, sizes, x.dtype)
    for axis, size in zip(chosen, sizes, strict=True):
        missing = size - x.shape[axis]
        begin = missing // 2 if missing > 0 else -(-missing // 2)
        amounts[axis] = (begin, missing - begin)
    cut, frame = _crop(op, x, amounts), [(max(begin, 0), max(end, 0)) for begin, end in amounts]
    require_room(op, _framed(cut, frame), x.dtype)
    return _surround(cut, frame, None)


@kernel("Trilu", since=14)
def trilu(x: Array, k: Array | None = None, *, upper: int = 1) -> Array:
    """Keep the part of each matrix on one side of a diagonal, zeros elsewhere."""
    require(x.ndim >= 2, "Trilu", "the input must have two axes or more", got=x.shape)
    diagonal = 0 if k is None else int(read_scalar("Trilu", "k", k))
    rows, columns = np.ogrid[: x.shape[-2], : x.shape[-1]]
    # Python integers cannot overflow, so an extreme diagonal keeps everything or nothing.
    edge = max(-x.shape[-2] - 1, min(diagonal, x.shape[-1] + 1))
    kept = columns - rows >= edge if upper else columns - rows <= edge
    y = x.copy()
    y[..., ~kept] = "" if x.dtype == object else np.zeros((), dtype=x.dtype)
    return y


@kernel("ReverseSequence", since=10)
def reverse_sequence(x: Array, sequence_lens: Array, *, batch_axis: int = 1, time_axis: int = 0) -> Array:
    """Reverse the first elements of each sequence, as many as its length, and keep the rest."""
    op = "ReverseSequence"
    require(x.ndim >= 2, op, "the input must have two axes or more", got=x.shape)
    fits = {batch_axis, time_axis} == {0, 1}
    require(fits, op, "batch and time must be the first two axes", got=(batch_axis, time_axis))
    steps, batch = x.shape[time_axis], x.shape[batch_axis]
    require(sequence_lens.shape == (batch,), op, "'sequence_lens' has the wrong shape", got=sequence_lens.shape)
    lengths = sequence_lens.astype(np.int64)
    valid = bool(((lengths >= 0) & (lengths <= steps)).all())
    require(valid, op, "a length is out of range", expected=f"0..{steps}", got=lengths.tolist())
    time = np.arange(steps)
    mirrored = np.where(time < lengths[:, None], lengths[:, None] - 1 - time, time)
    sequences = x if batch_axis == 0 else x.swapaxes(0, 1)
    y = sequences[np.arange(batch)[:, None], mirrored]
    return y if batch_axis == 0 else y.swapaxes(0, 1).copy()
