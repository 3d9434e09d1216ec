"""Regions: what becomes one kernel, one call of a library, or a few of them.

A kind of region is a class here or beside what makes it; ``tune.tasks`` knows the ways that each kind can run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dovetail_cuda.lower.expr import COLUMN, Expr, Load, Reduced, list_gathered, mentions, walk
from dovetail_cuda.lower.images import Image
from dovetail_cuda.lower.index import Index
from dovetail_cuda.lower.matrices import Matrix
from dovetail_cuda.lower.tensors import ConvTensor, Rows

__all__ = ["ConvRegion", "ElementRegion", "ProductRegion", "Region", "Stored"]


@dataclass(frozen=True, kw_only=True)
class Region(ABC):
    """Work over buffers, and the layers and operators that it is made of."""

    layers: tuple[str, ...] = ()
    ops: tuple[str, ...] = ()

    @property
    @abstractmethod
    def buffers(self) -> Sequence[str]:
        """The names of all buffers that it reads or writes."""


@dataclass(frozen=True, kw_only=True)
class Stored:
    """One result of a region: which element goes where."""

    buffer: str
    dtype: str
    value: Expr
    place: Index

    @property
    def roots(self) -> Sequence[Expr]:
        """The value, and what its place is computed of."""
        return (self.value, *list_gathered(self.place))

    @property
    def parts(self) -> Iterator[Expr]:
        """Every expression in it."""
        for root in self.roots:
            yield from walk(root)

    @property
    def is_reduced(self) -> bool:
        """Whether there is one element for all columns of a row."""
        return not mentions(self.place, COLUMN)


@dataclass(frozen=True, kw_only=True)
class ElementRegion(Region):
    """Results computed element by element, in rows where something is summed up over them."""

    stored: tuple[Stored, ...]
    count: int
    """Elements of a result without rows; else the number of rows."""
    rows: Rows | None = None

    @property
    def has_sums(self) -> bool:
        """Whether something is reduced over rows."""
        return any(isinstance(part, Reduced) for stored in self.stored for part in stored.parts)

    @property
    def buffers(self) -> Sequence[str]:
        """What is loaded and what is stored."""
        loads = [each.buffer for stored in self.stored for each in stored.parts if isinstance(each, Load)]
        return [*loads, *(stored.buffer for stored in self.stored)]


@dataclass(frozen=True, kw_only=True)
class ProductRegion(Region):
    """A batch of products of matrices (M, K) and (K, N) that lie in buffers, and what follows."""

    m: int
    n: int
    k: int
    batch: int
    dtype: str
    left: Matrix
    right: Matrix
    stored: Stored
    """Computed of the accumulator at a row, a column and a number of the batch."""

    @property
    def buffers(self) -> Sequence[str]:
        """Its operands, what follows reads, and its result."""
        loads = [each.buffer for each in walk(self.stored.value) if isinstance(each, Load)]
        return [self.left.buffer, self.right.buffer, *loads, self.stored.buffer]


@dataclass(frozen=True, kw_only=True)
class ConvRegion(Region):
    """A convolution, and what follows: rows are pixels of the result, columns its filters."""

    conv: ConvTensor
    image: Image
    weight: str
    """The filters, packed: (filters, R, S, C), or (R, S, 1, filters) where each channel has filters of its own."""
    stored: Stored
    """Computed of the accumulator at a row and a column."""

    @property
    def buffers(self) -> Sequence[str]:
        """The image, the filters, what is read besides, and the result."""
        loads = [each.buffer for each in walk(self.stored.value) if isinstance(each, Load)]
        return [self.image.buffer, self.weight, *loads, self.stored.buffer]
