"""Images of another size: Resize and the older Upsample, by factors or lengths that are known when a plan is built.

Where the nearest element is taken, which one that is comes from whole numbers alone. Else a place between elements is a
line over the number of the result's element, in double precision.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from dovetail_cuda.lower.expr import Expr, apply, both, convert, literal, position, select, within
from dovetail_cuda.lower.index import Index
from dovetail_cuda.lower.indexing import find_axis, move
from dovetail_cuda.lower.operators.gather import clamp_index
from dovetail_cuda.lower.operators.sampling import CUBIC, LINEAR, MOST_TAPS, Tap, weigh_taps
from dovetail_cuda.lower.registry import registry
from dovetail_cuda.lower.tensors import Tensor, refuse
from dovetail_cuda.lower.types import FLOATS, TYPES

__all__: list[str] = []

Coordinates = Sequence[Index]
Positions = npt.NDArray[np.float64]
_OLD_TYPES: Final = [name for name in TYPES if name != "bfloat16"]


@dataclass(frozen=True, kw_only=True)
class _ResizedAxis:
    """One axis: how long it was, how long it becomes, and where its new elements lie between the old ones."""

    size: int
    resized: int
    scale: float
    positions: Positions


@dataclass(frozen=True, kw_only=True)
class _Span:
    """The part of an axis that is looked at, and the exact length of the result."""

    start: float
    end: float
    exact: float


def _locate(mode: str, size: int, resized: int, scale: float, region: _Span) -> Positions:
    """Where the elements of a resized axis lie, in elements of the axis."""
    out, last = np.arange(resized, dtype=np.float64), size - 1
    if mode == "half_pixel" or (mode == "pytorch_half_pixel" and resized > 1):
        return (out + 0.5) / scale - 0.5
    if mode == "half_pixel_symmetric":
        return size / 2 * (1 - resized / region.exact) + (out + 0.5) / scale - 0.5
    if mode == "asymmetric":
        return out / scale
    if mode == "tf_half_pixel_for_nn":
        return (out + 0.5) / scale
    if mode == "align_corners" or mode == "pytorch_half_pixel":
        return out * last / (region.exact - 1) if resized > 1 else np.zeros_like(out)
    if mode != "tf_crop_and_resize":
        raise refuse(f"it has no coordinates '{mode}'")
    if resized > 1:
        return region.start * last + out * (region.end - region.start) * last / (region.exact - 1)
    return np.full_like(out, 0.5 * (region.start + region.end) * last)


_ROUND: Final[dict[str, Callable[[Positions], Positions]]] = {
    "round_prefer_floor": lambda at: np.ceil(at - 0.5),
    "round_prefer_ceil": lambda at: np.floor(at + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def _find_quotient(elements: npt.NDArray[np.int64], size: int, scale: float) -> tuple[int, int, int] | None:
    """(p, q, r) so that (n p + q) // r, kept inside of the axis, is the element of each n; None where none is."""
    step = Fraction(1 / scale).limit_denominator(4096)
    p, r = step.numerator, step.denominator
    out = np.arange(len(elements), dtype=np.int64)
    least = np.where(elements > 0, elements * r - out * p, np.iinfo(np.int64).min)
    most = np.where(elements < size - 1, (elements + 1) * r - 1 - out * p, np.iinfo(np.int64).max)
    low, high = int(least.max(initial=-(2**40))), int(most.min(initial=2**40))
    return (p, max(low, min(high, 0)), r) if low <= high else None


def _take_nearest(x: Tensor, axes: dict[int, _ResizedAxis], shape: Sequence[int], rounding: str) -> Tensor:
    if rounding not in _ROUND:
        raise refuse(f"it has no rounding '{rounding}'")
    rules = {}
    for axis, each in axes.items():
        elements = np.clip(_ROUND[rounding](each.positions), 0, each.size - 1).astype(np.int64)
        rule = _find_quotient(elements, each.size, each.scale)
        if rule is None:
            raise refuse(f"the elements that axis {axis} takes are no quotients of whole numbers")
        rules[axis] = rule

    def source(at: Coordinates) -> Coordinates:
        return [
            _keep_inside((c * rules[a][0] + rules[a][1]) // rules[a][2], x.shape[a]) if a in rules else c
            for a, c in enumerate(at)
        ]

    return move(x, shape, source)


def _keep_inside(index: Index, size: int) -> Index:
    low, high = index.bounds
    return index if low >= 0 and high < size else clamp_index(position(index), size)


def _resize_taps(at: Index, axis: _ResizedAxis, mode: str, factor: float, *, excludes: bool) -> list[Tap]:
    """The elements beside one of a resized axis: its place is a line over its number."""
    first = float(axis.positions[0])
    slope = float(axis.positions[-1] - first) / max(axis.resized - 1, 1)
    numbers = literal(slope, "float64"), literal(first, "float64")
    place = apply("{0} * {1} + {2}", position(at, "float64"), *numbers, dtype="float64")
    floor = apply("tl.floor({0})", place, dtype="float64")
    rest, whole = apply("{0} - {1}", place, floor, dtype="float64"), convert(floor, "int64")
    texts, made = (LINEAR if mode == "linear" else CUBIC), []
    for offset, text in texts.items():
        index = apply("{0} + {1}", whole, literal(offset, "int64"), dtype="int64")
        weight = apply(text, rest, literal(factor, "float64"), dtype="float64")
        if excludes:
            text = "tl.where(({1} >= 0) & ({1} < {2}), {0}, 0.0)"
            weight = apply(text, weight, index, literal(axis.size, "int64"), dtype="float64")
        made.append(Tap(clamp_index(index, axis.size), weight, None))
    return _normalize(made) if excludes else made


def _normalize(taps: list[Tap]) -> list[Tap]:
    """Weights that add up to one."""
    weights = [tap.weight for tap in taps if tap.weight is not None]
    text = " + ".join(f"{{{number}}}" for number in range(len(weights)))
    total = apply(text, *weights, dtype="float64")
    ratio = "{0} / tl.where({1} == 0, 1.0, {1})"
    shares = [apply(ratio, weight, total, dtype="float64") for weight in weights]
    return [Tap(tap.index, share, tap.inside) for tap, share in zip(taps, shares, strict=True)]


def _plan_axes(x: Tensor, along: Sequence[int], scales: Any, sizes: Any, policy: str) -> list[tuple[int, float, float]]:
    """For each axis its new length, its scale, and the exact length."""
    if sizes is not None and np.size(sizes):
        lengths = [int(size) for size in np.ravel(sizes)]
        factors = [length / max(x.shape[axis], 1) for length, axis in zip(lengths, along, strict=True)]
        if policy != "stretch":
            common = min(factors) if policy == "not_larger" else max(factors)
            factors = [common] * len(along)
            lengths = [math.floor(common * x.shape[axis] + 0.5) for axis in along]
    elif scales is not None and np.size(scales) == len(along):
        factors = [float(scale) for scale in np.ravel(scales)]
        given = [np.float32(x.shape[axis]) * np.float32(f) for axis, f in zip(along, factors, strict=True)]
        lengths = [math.floor(length) for length in given]
    else:
        raise refuse("neither scales nor sizes fit the axes")
    return [(n, f, f * x.shape[axis]) for n, f, axis in zip(lengths, factors, along, strict=True)]


@registry.register("Upsample", since=9, until=9, types={"T": _OLD_TYPES}, host_inputs=(1,))
@registry.register("Resize", since=10, until=10, types={"T": _OLD_TYPES}, host_inputs=(1,))
def resize_by_scales(x: Tensor, scales: Any, *, mode: str = "nearest") -> Tensor:
    """From the left edge of each element, rounded down."""
    renamed = "linear" if mode == "bilinear" else mode
    return resize(x, None, scales, mode=renamed, coordinate_transformation_mode="asymmetric", nearest_mode="floor")


@registry.register("Resize", since=11, types={"T1": TYPES}, host_inputs=(1, 2, 3))
def resize(
    x: Tensor,
    roi: Any = None,
    scales: Any = None,
    sizes: Any = None,
    *,
    antialias: int = 0,
    axes: Sequence[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Tensor:
    """Another number of elements along axes, by factors or lengths that are known."""
    if antialias and mode != "nearest":
        raise refuse("it does not smooth what it makes smaller")
    along = [find_axis(axis, x.rank) for axis in (range(x.rank) if axes is None else axes)]
    crops = coordinate_transformation_mode == "tf_crop_and_resize"
    parts = np.ravel(roi).astype(np.float64) if crops and roi is not None else np.zeros(0)
    if parts.size not in (0, 2 * len(along)) or 0 in x.shape:
        raise refuse("a region does not fit the axes, or there is nothing to resize")
    made = {}
    for place, (axis, planned) in enumerate(
        zip(along, _plan_axes(x, along, scales, sizes, keep_aspect_ratio_policy), strict=True)
    ):
        resized, scale, exact = planned
        start, end = (parts[place], parts[place + len(along)]) if parts.size else (0.0, 1.0)
        if resized == x.shape[axis] and scale == 1.0 and (start, end) == (0.0, 1.0):
            continue
        positions = _locate(
            coordinate_transformation_mode, x.shape[axis], resized, scale, _Span(start=start, end=end, exact=exact)
        )
        made[axis] = _ResizedAxis(size=x.shape[axis], resized=resized, scale=scale, positions=positions)
    shape = [made[axis].resized if axis in made else size for axis, size in enumerate(x.shape)]
    if mode == "nearest":
        result = _take_nearest(x, made, shape, nearest_mode)
    else:
        result = _interpolate(x, made, shape, mode, cubic_coeff_a, excludes=bool(exclude_outside))
    return _extrapolate(result, made, extrapolation_value) if crops else result


def _interpolate(
    x: Tensor, axes: dict[int, _ResizedAxis], shape: Sequence[int], mode: str, factor: float, *, excludes: bool
) -> Tensor:
    if (
        x.dtype not in FLOATS
        or mode not in ("linear", "cubic")
        or (4 if mode == "cubic" else 2) ** len(axes) > MOST_TAPS
    ):
        raise refuse(f"it does not resize {len(axes)} axes of {x.dtype} by '{mode}'")

    def pull(at: Coordinates, guard: Expr | None) -> Expr:
        taps = [
            _resize_taps(c, axes[a], mode, factor, excludes=excludes) if a in axes else [Tap(c, None, None)]
            for a, c in enumerate(at)
        ]
        return weigh_taps(x, (), taps, guard)

    return Tensor(shape=tuple(shape), dtype=x.dtype, pull=pull)


def _extrapolate(x: Tensor, axes: dict[int, _ResizedAxis], value: float) -> Tensor:
    """A number where a region reaches beyond the image."""
    ranges = {}
    for axis, each in axes.items():
        inside = np.flatnonzero((each.positions >= 0) & (each.positions <= each.size - 1))
        ranges[axis] = (int(inside[0]), int(inside[-1]) + 1) if inside.size else (0, 0)

    def pull(at: Coordinates, guard: Expr | None) -> Expr:
        inside: Expr | None = None
        for axis, (low, high) in ranges.items():
            inside = both(inside, within(at[axis], low, high))
        return select(inside, x.at(at, both(guard, inside)), literal(value, x.dtype))

    return Tensor(shape=x.shape, dtype=x.dtype, pull=pull)
