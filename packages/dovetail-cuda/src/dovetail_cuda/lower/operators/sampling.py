"""Images read between their elements, at the points of a grid (GridSample), and a grid of such points (AffineGrid).

Along every axis a point has a few elements beside it, each with a weight; the result is the sum over all combinations.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from dovetail_cuda.lower.expr import Expr, apply, both, convert, literal, position
from dovetail_cuda.lower.index import Index
from dovetail_cuda.lower.operators.gather import clamp_index
from dovetail_cuda.lower.registry import registry
from dovetail_cuda.lower.tensors import Tensor, refuse
from dovetail_cuda.lower.types import FLOATS

__all__ = ["CUBIC", "LINEAR", "MOST_TAPS", "Tap", "weigh_taps"]

Coordinates = Sequence[Index]
_FAR: Final = 2.0**31
"""Coordinates are cut here before they become whole numbers; no axis is that long."""
MOST_TAPS: Final = 64
CUBIC: Final = {
    -1: "((({1} * (1 + {0}) - 5 * {1}) * (1 + {0}) + 8 * {1}) * (1 + {0}) - 4 * {1})",
    0: "((({1} + 2) * {0} - ({1} + 3)) * {0} * {0} + 1)",
    1: "((({1} + 2) * (1 - {0}) - ({1} + 3)) * (1 - {0}) * (1 - {0}) + 1)",
    2: "((({1} * (2 - {0}) - 5 * {1}) * (2 - {0}) + 8 * {1}) * (2 - {0}) - 4 * {1})",
}
"""The weight of the element at an offset from the one below a point, by the distance {0} to that one."""
LINEAR: Final = {0: "(1 - {0})", 1: "{0}"}


@dataclass(frozen=True)
class Tap:
    """An element beside a point along one axis."""

    index: Index
    weight: Expr | None
    inside: Expr | None


def weigh_taps(x: Tensor, lead: Coordinates, taps: Sequence[Sequence[Tap]], guard: Expr | None) -> Expr:
    """The sum over all combinations of elements beside a point; what is outside counts as zero."""
    dtype = "float64" if x.dtype == "float64" else "float32"
    total: Expr | None = None
    for corner in itertools.product(*taps):
        inside = guard
        for tap in corner:
            inside = both(inside, tap.inside)
        value = convert(x.at((*lead, *(tap.index for tap in corner)), inside), dtype)
        for tap in corner:
            if tap.weight is not None:
                value = apply("{0} * {1}", value, convert(tap.weight, dtype), dtype=dtype)
        total = value if total is None else apply("{0} + {1}", total, value, dtype=dtype)
    if total is None:
        raise refuse("a point has no elements beside it")
    return convert(total, x.dtype)


# GridSample


@dataclass(frozen=True)
class _Padding:
    """What points outside of an image mean."""

    mode: str
    is_aligned: bool

    def list_borders(self, size: int) -> tuple[float, float]:
        """The coordinates of -1 and 1."""
        return (0.0, size - 1.0) if self.is_aligned else (-0.5, size - 0.5)

    def reflect(self, x: Expr, size: int) -> Expr:
        """A coordinate folded into the image as if its borders were mirrors."""
        low, high = self.list_borders(size)
        if high <= low:
            return literal(low, x.dtype)
        numbers = literal(low, x.dtype), literal(2 * (high - low), x.dtype), literal(high - low, x.dtype)
        folded = apply("f.floor_mod(tl.abs({0} - {1}), {2})", x, *numbers, dtype=x.dtype)
        return apply("{1} + tl.where({0} > {3}, {2} - {0}, {0})", folded, *numbers, dtype=x.dtype)

    def place(self, x: Expr, size: int) -> Expr:
        """A coordinate moved inside."""
        if self.mode == "zeros":
            return x
        low, high = (literal(border, x.dtype) for border in self.list_borders(size))
        last = literal(size - 1, x.dtype)
        moved = (
            self.reflect(x, size)
            if self.mode == "reflection"
            else apply("tl.clamp({0}, 0.0, {1})", x, last, dtype=x.dtype)
        )
        return apply("tl.where(({0} < {1}) | ({0} > {2}), {3}, {0})", x, low, high, moved, dtype=x.dtype)

    def resolve(self, whole: Expr, size: int) -> tuple[Index, Expr | None]:
        """The element at a whole coordinate, and whether it counts where not all do."""
        if self.mode == "zeros":
            inside = apply("({0} >= 0) & ({0} < {1})", whole, literal(size, "int64"), dtype="bool")
            return clamp_index(whole, size), inside
        if self.mode == "reflection":
            whole = convert(self.reflect(convert(whole, "float32"), size), "int64")
        return clamp_index(whole, size), None


def _list_taps(x: Expr, size: int, mode: str, padding: _Padding) -> list[Tap]:
    """The elements beside a coordinate."""
    if mode == "nearest":
        return [Tap(*_spread(padding.resolve(convert(x, "int64"), size)))]
    floor = apply("tl.floor({0})", x, dtype=x.dtype)
    rest, whole = apply("{0} - {1}", x, floor, dtype=x.dtype), convert(floor, "int64")
    texts, factor = (LINEAR, 0.0) if mode == "linear" else (CUBIC, -0.75)
    made = []
    for offset, text in texts.items():
        index, inside = padding.resolve(apply("{0} + {1}", whole, literal(offset, "int64"), dtype="int64"), size)
        made.append(Tap(index, apply(text, rest, literal(factor, x.dtype), dtype=x.dtype), inside))
    return made


def _spread(resolved: tuple[Index, Expr | None]) -> tuple[Index, None, Expr | None]:
    return resolved[0], None, resolved[1]


@registry.register(
    "GridSample", since=16, until=19, types={"T1": ("float16", "float32", "float64"), "T2": FLOATS[:1] + FLOATS[2:]}
)
def grid_sample_16(
    x: Tensor, grid: Tensor, *, align_corners: int = 0, mode: str = "bilinear", padding_mode: str = "zeros"
) -> Tensor:
    """Under the names that the modes had before there were volumes."""
    renamed = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    return grid_sample(x, grid, align_corners=align_corners, mode=renamed, padding_mode=padding_mode)


@registry.register("GridSample", since=20, types={"T1": ("float16", "float32", "float64"), "T2": FLOATS})
def grid_sample(
    x: Tensor, grid: Tensor, *, align_corners: int = 0, mode: str = "linear", padding_mode: str = "zeros"
) -> Tensor:
    """An image at the points of a grid, whose coordinates go from -1 to 1, the innermost axis first."""
    rank, padding = x.rank - 2, _Padding(padding_mode, bool(align_corners))
    num_taps = {"nearest": 1, "linear": 2, "cubic": 4}.get(mode, 0) ** rank
    if not 0 < num_taps <= MOST_TAPS or grid.rank != x.rank or grid.shape[-1] != rank or 0 in x.shape:
        raise refuse(f"it does not sample {x.shape} at {grid.shape} by '{mode}'")
    text = "({0} + 1) / 2 * ({1} - 1)" if align_corners else "(({0} + 1) * {1} - 1) / 2"

    def locate(at: Coordinates, axis: int, guard: Expr | None) -> Expr:
        given = grid.at((at[0], *at[2:], Index((), rank - 1 - axis)), guard)
        wide = convert(given, "float64" if grid.dtype == "float64" else "float32")
        size = x.shape[2 + axis]
        place = apply(text, wide, literal(size, wide.dtype), dtype=wide.dtype)
        far = literal(_FAR, wide.dtype)
        place = apply("tl.where({0} == {0}, tl.clamp({0}, -{1}, {1}), -{1})", place, far, dtype=wide.dtype)
        if mode == "nearest":
            place = apply("f.round({0})", place, dtype=wide.dtype)
        return padding.place(place, size)

    def pull(at: Coordinates, guard: Expr | None) -> Expr:
        taps = [_list_taps(locate(at, axis, guard), x.shape[2 + axis], mode, padding) for axis in range(rank)]
        return weigh_taps(x, at[:2], taps, guard)

    return Tensor(shape=(*x.shape[:2], *grid.shape[1:-1]), dtype=x.dtype, pull=pull)


# AffineGrid


@registry.register("AffineGrid", since=20, types={"T1": FLOATS}, host_inputs=(1,))
def affine_grid(theta: Tensor, size: Any, *, align_corners: int = 0) -> Tensor:
    """Each affine matrix applied to the regular grid of an image or volume."""
    spatial = [int(each) for each in np.ravel(size)[2:]]
    rank, dtype = len(spatial), "float64" if theta.dtype == "float64" else "float32"
    if theta.shape[1:] != (rank, rank + 1):
        raise refuse(f"matrices of shape {theta.shape} are not for {rank} axes")

    def locate(index: Index, count: int) -> Expr:
        step, first = (2 / max(count - 1, 1), -1.0) if align_corners else (2 / max(count, 1), 1 / max(count, 1) - 1)
        numbers = literal(step, "float64"), literal(first, "float64")
        return convert(apply("{0} * {1} + {2}", position(index, "float64"), *numbers, dtype="float64"), dtype)

    def pull(at: Coordinates, guard: Expr | None) -> Expr:
        total = convert(theta.at((at[0], at[-1], Index((), rank)), guard), dtype)
        for axis, count in enumerate(spatial):
            factor = convert(theta.at((at[0], at[-1], Index((), rank - 1 - axis)), guard), dtype)
            total = apply("{0} + {1} * {2}", total, factor, locate(at[1 + axis], count), dtype=dtype)
        return convert(total, theta.dtype)

    return Tensor(shape=(theta.shape[0], *spatial, rank), dtype=theta.dtype, pull=pull)
