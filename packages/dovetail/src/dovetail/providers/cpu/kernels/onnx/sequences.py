"""Sequences, which are lists of arrays, and optionals, which are a value or None.

Both are host values: a list is never changed once it was returned, and the arrays in it are never written to, so that
sequences may share them. An array is copied when it enters or leaves a sequence.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.providers.cpu._numeric import Array
from dovetail.providers.cpu.kernels._checks import fail, normalize_axis, read_scalar, require
from dovetail.providers.cpu.kernels._conversion import dtype_of
from dovetail.providers.cpu.registry import kernel

__all__ = [
    "concat_from_sequence",
    "optional",
    "optional_get_element",
    "optional_has_element",
    "sequence_at",
    "sequence_construct",
    "sequence_empty",
    "sequence_erase",
    "sequence_insert",
    "sequence_length",
    "split_to_sequence",
]

Sequence = list[Array]


def _place(op: str, position: Array, length: int) -> int:
    """A position in a sequence, counted from the front."""
    index = int(read_scalar(op, "position", position))
    require(-length <= index < length, op, "position is out of range", expected=f"{-length}..{length - 1}", got=index)
    return index % length


@kernel("SequenceConstruct", since=11)
def sequence_construct(*inputs: Array) -> tuple[Sequence]:
    """A sequence of these tensors."""
    return ([part.copy() for part in inputs],)


@kernel("SequenceEmpty", since=11)
def sequence_empty(*, dtype: int = 1) -> tuple[Sequence]:
    """A sequence of nothing; the element type matters to type checks alone."""
    dtype_of(dtype)
    return ([],)


@kernel("SequenceInsert", since=11)
def sequence_insert(sequence: Sequence, tensor: Array, position: Array | None = None) -> tuple[Sequence]:
    """A new sequence with a tensor put in before the position, or at the end."""
    count = len(sequence)
    index = count if position is None else int(read_scalar("SequenceInsert", "position", position))
    fits = -count <= index <= count
    require(fits, "SequenceInsert", "position is out of range", expected=f"{-count}..{count}", got=index)
    # A list counts a negative place from the back as ONNX does.
    result = list(sequence)
    result.insert(index, tensor.copy())
    return (result,)


@kernel("SequenceErase", since=11)
def sequence_erase(sequence: Sequence, position: Array | None = None) -> tuple[Sequence]:
    """A new sequence without the tensor at the position, or without the last."""
    require(len(sequence) > 0, "SequenceErase", "the sequence is empty")
    result = list(sequence)
    del result[-1 if position is None else _place("SequenceErase", position, len(result))]
    return (result,)


@kernel("SequenceAt", since=11)
def sequence_at(sequence: Sequence, position: Array) -> Array:
    """The tensor at the position."""
    return sequence[_place("SequenceAt", position, len(sequence))].copy()


@kernel("SequenceLength", since=11)
def sequence_length(sequence: Sequence) -> Array:
    """The count of tensors."""
    return np.array(len(sequence), dtype=np.int64)


@kernel("ConcatFromSequence", since=11)
def concat_from_sequence(sequence: Sequence, *, axis: int, new_axis: int = 0) -> Array:
    """All tensors joined along an axis, an old or a new one."""
    op = "ConcatFromSequence"
    require(len(sequence) > 0, op, "the sequence is empty")
    where = normalize_axis(op, axis, sequence[0].ndim + bool(new_axis))
    shapes = [part.shape if new_axis else part.shape[:where] + part.shape[where + 1 :] for part in sequence]
    require(len(set(shapes)) == 1, op, "tensors differ off the axis", got=[part.shape for part in sequence])
    return np.stack(sequence, axis=where) if new_axis else np.concatenate(sequence, axis=where)


@kernel("SplitToSequence", since=11)
def split_to_sequence(x: Array, split: Array | None = None, *, axis: int = 0, keepdims: int = 1) -> tuple[Sequence]:
    """The parts of a tensor along an axis: of these sizes, of one size, or single slices."""
    op = "SplitToSequence"
    where = normalize_axis(op, axis, x.ndim)
    length = x.shape[where]
    if split is not None and split.ndim > 0:
        sizes = [int(n) for n in split]
    else:
        chunk = 1 if split is None else int(split)
        require(chunk > 0, op, "a part must not be empty", got=chunk)
        sizes = [min(chunk, length - start) for start in range(0, length, chunk)]
    fits = min(sizes, default=0) >= 0 and sum(sizes) == length
    require(fits, op, "sizes do not add up to the axis", expected=length, got=sizes)
    parts = np.split(x, np.cumsum(sizes)[:-1].tolist(), axis=where) if sizes else []
    drop_axis = split is None and not keepdims
    return ([part.squeeze(where).copy() if drop_axis else part.copy() for part in parts],)


@kernel("Optional", since=15)
def optional(value: Any = None, *, type: Any = None) -> tuple[Any]:  # noqa: A002
    """A value that may be absent; ``type`` names what it would be."""
    del type
    return (value.copy() if isinstance(value, np.ndarray) else value,)


@kernel("OptionalGetElement", since=15)
def optional_get_element(value: Any) -> tuple[Any]:
    """The value of an optional that has one."""
    if value is None:
        fail("OptionalGetElement", "the optional is empty")
    return (list(value) if isinstance(value, list) else value.copy(),)


@kernel("OptionalHasElement", since=15)
def optional_has_element(value: Any = None) -> Array:
    """Whether an optional has a value."""
    return np.array(value is not None)
