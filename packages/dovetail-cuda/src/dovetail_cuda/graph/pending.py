"""What a convolution or a row gives, until it is known what else its kernel does: operators that follow it alone.

Such a result is a tensor over a buffer that nobody has written yet, so that whatever follows is lowered as ever. When
a value that is made of it is stored, and every element needs just the element of the buffer that is at hand then, the
kernel stores that value instead; otherwise it writes the buffer, and the loads are loads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from dovetail_cuda.graph.regions import ConvRegion, ElementRegion, Region, Stored
from dovetail_cuda.lower.expr import COLUMN, Expr, Load, walk
from dovetail_cuda.lower.images import CHANNELS_LAST, Image
from dovetail_cuda.lower.index import Index, flatten, unflatten
from dovetail_cuda.lower.renumber import renumber, replace_loads
from dovetail_cuda.lower.tensors import ConvTensor, RowTensor, Tensor, make_buffer

__all__ = ["FOLLOWERS", "Pending", "begin_conv", "begin_rows", "join", "list_pending"]

FOLLOWERS: Final = frozenset(
    (
        *("Abs", "Add", "BatchNormalization", "Cast", "Ceil", "Celu", "Clip", "Div", "Elu", "Erf", "Exp", "Flatten"),
        *("Floor", "Gelu", "HardSigmoid", "HardSwish", "Identity", "LeakyRelu", "Log", "Max", "Min", "Mish", "Mul"),
        *("Neg", "PRelu", "Pow", "Reciprocal", "Relu", "Reshape", "Round", "Selu", "Sigmoid", "Softplus", "Softsign"),
        *("Sqrt", "Squeeze", "Sub", "Sum", "Swish", "Tanh", "ThresholdedRelu", "Transpose", "Unsqueeze", "Where"),
    )
)
"""Operators that may become part of the kernel before them."""
_ROW: Final = "i"


@dataclass(frozen=True, kw_only=True, eq=False)
class PendingConv:
    """A convolution over images and filters that lie in buffers."""

    made: ConvTensor
    image: Image
    weight: str
    name: str
    """The buffer that is not written yet."""
    tensor: Tensor
    """The result over it."""

    @property
    def coordinates(self) -> tuple[Index, ...]:
        """Where the element at a pixel (row) and a filter (column) is."""
        batch, filters, high, wide = self.made.whole_shape
        image, line, pixel = unflatten(Index.variable(_ROW, batch * high * wide), (batch, high, wide))
        return image, Index.variable(COLUMN, filters), line, pixel

    def make_region(self, stored: Stored, layers: tuple[str, ...], ops: tuple[str, ...]) -> Region:
        """The kernel that stores a value made of the result."""
        return ConvRegion(
            conv=self.made, image=self.image, weight=self.weight, sums=self.name, stored=stored, layers=layers, ops=ops
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class PendingRows:
    """What is made a row at a time."""

    made: RowTensor
    value: Expr
    """One element, with the rows counted in the order of memory."""
    name: str
    tensor: Tensor
    coordinates: tuple[Index, ...]

    def make_region(self, stored: Stored, layers: tuple[str, ...], ops: tuple[str, ...]) -> Region:
        """The kernel that stores a value made of the result."""
        rows, value = self.made.rows, replace_loads(stored.value, self.name, self.value)
        inner = Stored(buffer=stored.buffer, dtype=stored.dtype, value=value, place=stored.place)
        return ElementRegion(stored=(inner,), count=rows.num_rows, rows=rows, layers=layers, ops=ops)


Pending = PendingConv | PendingRows


def begin_conv(name: str, made: ConvTensor, image: Image, weight: str) -> PendingConv:
    """A convolution whose result lies with its channels last."""
    tensor = make_buffer(name, made.whole_shape, made.dtype, CHANNELS_LAST[4])
    return PendingConv(made=made, image=image, weight=weight, name=name, tensor=tensor)


def begin_rows(name: str, made: RowTensor, order: Sequence[int]) -> PendingRows:
    """A row whose result lies in an order of dimensions."""
    shape, rows = made.shape, made.rows
    tensor = make_buffer(name, shape, made.dtype, order)
    if not made.is_reduced:
        flat = flatten(rows.coordinates, rows.shape)
        return PendingRows(made=made, value=made.value, name=name, tensor=tensor, coordinates=unflatten(flat, shape))
    outer = unflatten(Index.variable(_ROW, rows.num_rows), [shape[axis] for axis in order])
    places = dict(zip(order, outer, strict=True))
    coordinates = tuple(places[axis] for axis in range(len(shape)))
    value = renumber(made.value, _ROW, flatten(coordinates, shape))
    return PendingRows(made=made, value=value, name=name, tensor=tensor, coordinates=coordinates)


def list_pending(value: Expr, pending: dict[str, Pending]) -> list[Pending]:
    """Those that an expression is made of, the latest begun last."""
    loaded = {each.buffer for each in walk(value) if isinstance(each, Load)}
    return [each for name, each in pending.items() if name in loaded]


def join(pending: Pending, made: Tensor, order: Sequence[int]) -> Stored | None:
    """What the kernel stores instead, by the elements at hand; None where it would need others than those.

    Args:
        pending: What is at hand.
        made: The value to store.
        order: That of its dimensions in memory.
    """
    if made.count != pending.tensor.count:
        return None
    own = pending.tensor.at(pending.coordinates)
    for coordinates in _list_coordinates(pending, made, order):
        value = made.at(coordinates)
        if all(_is_same(each, own) for each in walk(value) if isinstance(each, Load) and each.buffer == pending.name):
            place = flatten([coordinates[axis] for axis in order], [made.shape[axis] for axis in order])
            return Stored(buffer="", dtype=made.dtype, value=value, place=place)
    return None


def _list_coordinates(pending: Pending, made: Tensor, order: Sequence[int]) -> Iterator[tuple[Index, ...]]:
    """Where the element at hand may have gone: to the same coordinates of another shape, or to the same memory."""
    yield unflatten(flatten(pending.coordinates, pending.tensor.shape), made.shape)
    own = pending.tensor.at(pending.coordinates)
    if isinstance(own, Load):
        places = dict(zip(order, unflatten(own.index, [made.shape[axis] for axis in order]), strict=True))
        yield tuple(places[axis] for axis in range(made.rank))


def _is_same(each: Load, own: Expr) -> bool:
    if not isinstance(own, Load) or each.guard is not None:
        return False
    return each.index.constant == own.index.constant and dict(each.index.terms) == dict(own.index.terms)
