"""Tensors while a partition is lowered: each knows how to give the expression of one of its elements.

Nothing is computed by making one. A ``Tensor`` that is read by another becomes part of that one's expression, until the
planner decides to store it. What is a kernel of its own (``Anchor``), such as a product or what is made a row at a
time, is stored before anything reads it that is no part of that kernel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from dovetail.errors import ProviderError
from dovetail_cuda.lower.expr import COLUMN, Expr, literal, load, reduced
from dovetail_cuda.lower.index import Index, flatten_by, unflatten
from dovetail_cuda.lower.sizes import is_fixed, least
from dovetail_cuda.lower.sliding import Sliding
from dovetail_cuda.lower.types import TYPES

__all__ = [
    "CHANNELS_LAST",
    "Anchor",
    "ConvTensor",
    "Lowered",
    "ProductTensor",
    "RowTensor",
    "Rows",
    "Tensor",
    "Update",
    "broadcast_shapes",
    "broadcast_to",
    "make_buffer",
    "make_constant",
    "make_weight",
    "refuse",
]

CHANNELS_LAST: Final = {3: (0, 2, 1), 4: (0, 2, 3, 1)}
"""The order of dimensions in memory that convolutions read best, by rank."""
Coordinates = Sequence[Index]
Pull = Callable[[Coordinates, "Expr | None"], Expr]


def refuse(what: str) -> ProviderError:
    """The error of something that this back end does not do, which sends the node to another one."""
    return ProviderError(what, where="provider 'cuda'")


@dataclass(frozen=True, kw_only=True, eq=False)
class Update:
    """How a tensor is another one with some elements replaced."""

    base: Tensor
    source: Tensor
    """What replaces them, element by element."""
    place: Callable[[Coordinates], Coordinates]
    """Where an element of the source goes."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Tensor:
    """A tensor that is computed where it is read."""

    shape: tuple[int, ...]
    dtype: str
    pull: Pull
    """The element at some coordinates, read only where a condition holds."""
    buffer: str | None = None
    """The buffer that it is, element by element."""
    update: Update | None = None
    """What makes it of another tensor in that one's memory, where it can be made so."""
    is_mapped: bool = False
    """Whether it is the elements of another tensor at other places, so that whole rows of it need not lie together."""

    def at(self, coordinates: Coordinates, guard: Expr | None = None) -> Expr:
        """The expression of one element."""
        return self.pull(coordinates, guard)

    @property
    def count(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)

    @property
    def rank(self) -> int:
        """How many dimensions it has."""
        return len(self.shape)


class Rows:
    """The scope in which the elements of one row are written down.

    Args:
        shape: What all rows make together.
        axes: Those of its dimensions that a row goes over.
    """

    def __init__(self, shape: Sequence[int], axes: Sequence[int]) -> None:
        self.shape = tuple(shape)
        self.axes = tuple(sorted(axes))
        self.kept = tuple(axis for axis in range(len(shape)) if axis not in axes)
        self.num_rows = math.prod(self.shape[axis] for axis in self.kept)
        self.num_columns = math.prod(self.shape[axis] for axis in self.axes)

    @property
    def coordinates(self) -> tuple[Index, ...]:
        """Where the element of this row and column is."""
        outer = unflatten(Index.variable("i", self.num_rows), [self.shape[axis] for axis in self.kept])
        inner = unflatten(self.column, [self.shape[axis] for axis in self.axes])
        places = dict(zip((*self.kept, *self.axes), (*outer, *inner), strict=True))
        return tuple(places[axis] for axis in range(len(self.shape)))

    @property
    def column(self) -> Index:
        """The number of the column."""
        return Index.variable(COLUMN, self.num_columns)

    def read(self, tensor: Tensor) -> Expr:
        """The element of a tensor that can be stretched to the shape of all rows."""
        return broadcast_to(tensor, self.shape).at(self.coordinates)

    def reduce(self, kind: str, value: Expr, dtype: str | None = None) -> Expr:
        """What becomes of a value over the row."""
        return reduced(kind, value, dtype or value.dtype)


@dataclass(frozen=True, kw_only=True, eq=False)
class Anchor:
    """A tensor that is a region of its own; ``graph.anchors`` has what makes the region of each kind."""

    shape: tuple[int, ...]
    dtype: str
    finish: Callable[[Tensor], Tensor] = lambda result: result
    """What the operator itself has follow, such as the sum with a bias."""
    spread: Callable[[Coordinates], Coordinates] = lambda at: at
    """Where an element of the result lies in what that makes."""

    @property
    def order(self) -> tuple[int, ...]:
        """The dimensions from the outermost to the innermost, as its kernel goes over them."""
        return tuple(range(len(self.shape)))


@dataclass(frozen=True, kw_only=True, eq=False)
class RowTensor(Anchor):
    """A tensor that is made a row at a time, such as a Softmax or the sum over an axis."""

    rows: Rows
    value: Expr
    """One element, in the scope of its row."""
    is_reduced: bool
    """Whether there is one element for each row, and not one for each of its columns."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ProductTensor(Anchor):
    """Matrices multiplied, a batch at a time."""

    left: Tensor
    """(..., M, K)"""
    right: Tensor
    """(..., K, N)"""
    plain: RowTensor
    """The same as sums over rows, for what is too small to be multiplied in tiles."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ConvTensor(Anchor):
    """Images convolved with filters, over two spatial dimensions; the shape may leave out the first of them."""

    image: Tensor
    """(N, C, H, W)"""
    weight: Tensor
    """(filters, C / groups, R, S)"""
    sliding: Sliding
    group: int
    recipe: str
    """How the filters are packed, of ``run.packing``."""
    source: str | None
    """The buffer that they are packed of, where they are a weight."""
    padded: Tensor | None = None
    """What is stored for the image to be read of it, where the image is no tensor of the network."""

    @property
    def order(self) -> tuple[int, ...]:
        """With its channels last."""
        return CHANNELS_LAST[len(self.shape)]

    @property
    def whole_shape(self) -> tuple[int, int, int, int]:
        """The result with both spatial dimensions."""
        high, wide = self.sliding.outputs
        return self.image.shape[0], self.weight.shape[0], high, wide

    @property
    def is_depthwise(self) -> bool:
        """Whether every filter sees one channel of many."""
        return self.weight.shape[1] == 1 and self.group > 1


Lowered = Tensor | Anchor


def make_buffer(name: str, shape: Sequence[int], dtype: str, order: Sequence[int] = ()) -> Tensor:
    """What lies in memory, row by row; the order names the dimensions from the outermost in memory to the innermost."""
    if dtype not in TYPES:
        raise refuse(f"it has no type {dtype}")
    axes = tuple(order) or tuple(range(len(shape)))

    def pull(coordinates: Coordinates, guard: Expr | None) -> Expr:
        return load(name, flatten_by(coordinates, shape, axes), guard, dtype)

    return Tensor(shape=tuple(shape), dtype=dtype, pull=pull, buffer=name)


def make_constant(value: Any, shape: Sequence[int], dtype: str) -> Tensor:
    """The same number everywhere."""
    return Tensor(shape=tuple(shape), dtype=dtype, pull=lambda coordinates, guard: literal(value, dtype))


def make_weight(array: npt.NDArray[Any], name: str) -> Tensor:
    """A weight: a number where it is only one, else the buffer of that name."""
    dtype = array.dtype.name
    if array.size == 1 and dtype in TYPES and np.all(np.isfinite(array.astype(np.float64))):
        return make_constant(array.reshape(()).item(), array.shape, dtype)
    return make_buffer(name, array.shape, dtype)


def broadcast_shapes(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The shape that all can be stretched to."""
    rank = max((len(shape) for shape in shapes), default=0)
    whole = [(*(1,) * (rank - len(shape)), *shape) for shape in shapes]
    return tuple(_stretch(sizes) for sizes in zip(*whole, strict=True))


def _stretch(sizes: Sequence[int]) -> int:
    """The size that dimensions of one axis are stretched to."""
    long = [size for size in dict.fromkeys(sizes) if size != 1]
    if len(long) < 2:
        return long[0] if long else 1
    fixed = [size for size in long if is_fixed(size)]
    # What cannot be 1 in any run must be as long as the others, or the model is wrong.
    if len(fixed) > 1 or any(least(size) < 2 for size in long):
        raise refuse(f"dimensions of {', '.join(map(repr, long))} may not fit each other, or may have to be stretched")
    return (fixed or long)[0]


def broadcast_to(tensor: Tensor, shape: Sequence[int]) -> Tensor:
    """A tensor stretched to a shape: its dimensions of size 1 are repeated."""
    if tensor.shape == tuple(shape):
        return tensor
    missing = len(shape) - tensor.rank

    def pull(coordinates: Coordinates, guard: Expr | None) -> Expr:
        own = zip(coordinates[missing:], tensor.shape, strict=True)
        return tensor.at([Index() if size == 1 else coordinate for coordinate, size in own], guard)

    return Tensor(shape=tuple(shape), dtype=tensor.dtype, pull=pull, is_mapped=tensor.is_mapped)
