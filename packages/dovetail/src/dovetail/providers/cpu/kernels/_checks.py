"""Checks of what reaches a kernel as data: axes, shapes and indices, each failure naming the op.

An index that comes from a tensor is never used before it went through ``wrap_indices``, so that no kernel reads or
writes outside its arrays whatever a model or a caller passes.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from typing import Any, Final, NoReturn

import numpy as np

from dovetail.errors import InputError
from dovetail.providers.cpu._numeric import Array

__all__ = [
    "fail",
    "normalize_axes",
    "normalize_axis",
    "read_scalar",
    "require",
    "require_room",
    "spread",
    "wrap_indices",
]


def _count_memory_bytes() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 2**40  # no such question on this system: more than its memory, less than an absurd size


_MEMORY_BYTES: Final = _count_memory_bytes()


def fail(op: str, what: str, *, expected: object = None, got: object = None) -> NoReturn:
    """Raise the error of a kernel whose inputs do not fit."""
    raise InputError(
        what, where=f"op {op}", expected=expected, got=got, fix="change the input, or the node that makes it"
    )


def require(condition: bool, op: str, what: str, *, expected: object = None, got: object = None) -> None:
    """Raise ``InputError`` for this op unless the condition holds."""
    if not condition:
        fail(op, what, expected=expected, got=got)


def normalize_axis(op: str, axis: int, rank: int) -> int:
    """An axis counted from the front.

    >>> normalize_axis("Gather", -1, 3)
    2
    """
    require(-rank <= axis < rank, op, "axis is out of range", expected=f"{-rank}..{rank - 1}", got=axis)
    return int(axis) % rank


def normalize_axes(op: str, axes: Iterable[int] | None, rank: int) -> tuple[int, ...]:
    """Axes counted from the front, in the order given; all of them when none are named."""
    if axes is None:
        return tuple(range(rank))
    normal = tuple(normalize_axis(op, int(axis), rank) for axis in axes)
    require(len(set(normal)) == len(normal), op, "an axis is named twice", got=normal)
    return normal


def wrap_indices(op: str, indices: Array, size: int, *, lowest: int | None = None) -> Array:
    """Indices as int64 in 0..size-1, negative ones counted from the end; out of range raises ``InputError``.

    ``lowest`` narrows what is accepted: 0 where the op knows no negative indices.

    >>> wrap_indices("Gather", np.array([-1, 0]), 4)
    array([3, 0])
    """
    floor = -size if lowest is None else lowest
    wide = indices.astype(np.int64)
    if wide.size and (wide.min() < floor or wide.max() >= size):
        worst = wide.min() if wide.min() < floor else wide.max()
        fail(op, "index is out of range", expected=f"{floor}..{size - 1}", got=int(worst))
    return np.where(wide < 0, wide + size, wide)


def require_room(op: str, shape: Sequence[int], dtype: np.dtype[Any]) -> None:
    """Raise ``InputError`` for a result that is larger than all memory, before it is allocated.

    For every op whose data, not the shapes of its inputs, decide how large the result is.
    """
    size = math.prod(int(n) for n in shape) * dtype.itemsize
    # NumPy cannot address an empty array of absurd sizes either.
    largest = max((int(n) for n in shape), default=0)
    fits = size <= _MEMORY_BYTES and largest < 2**63
    require(fits, op, "the result does not fit into memory", expected=f"<= {_MEMORY_BYTES} bytes", got=tuple(shape))


def read_scalar(op: str, name: str, array: Array) -> int | float | bool:
    """The one element of an input that must hold exactly one."""
    require(array.size == 1, op, f"'{name}' must hold one element", expected=1, got=array.size)
    value: int | float | bool = array.reshape(()).item()
    return value


def spread(values: Sequence[int] | None, default: int, count: int, *, op: str, name: str) -> tuple[int, ...]:
    """An attribute with one number an axis, or the default for each when it is absent.

    >>> spread(None, 1, 2, op="Conv", name="strides")
    (1, 1)
    """
    if values is None or len(values) == 0:
        return (default,) * count
    require(len(values) == count, op, f"'{name}' has the wrong length", expected=count, got=len(values))
    return tuple(int(value) for value in values)
