"""Optimization profiles: for each dynamic input the smallest, the tuned and the largest shape."""

from __future__ import annotations

from collections.abc import Iterable

from dovetail._integers import as_integers
from dovetail.errors import UsageError
from dovetail.strict_attributes import StrictAttributes
from dovetail.types import Dims

__all__ = ["IOptimizationProfile", "OptimizationProfile"]

Bounds = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


class OptimizationProfile(StrictAttributes):
    """Bounds by input name.

    >>> profile = OptimizationProfile(); profile.set_shape("x", (1, 3), (4, 3), (8, 3))
    >>> [tuple(d) for d in profile.get_shape("x")]
    [(1, 3), (4, 3), (8, 3)]
    """

    __slots__ = ("extra_memory_target", "shapes", "values")

    def __init__(self) -> None:
        self.shapes: dict[str, Bounds] = {}
        self.values: dict[str, Bounds] = {}
        self.extra_memory_target = 1.0

    def set_shape(self, input: str, min: Iterable[int], opt: Iterable[int], max: Iterable[int]) -> None:  # noqa: A002
        """Set the bounds of an input's shape."""
        bounds = _check(input, min, opt, max)
        if any(n < 0 for n in bounds[0]):
            raise UsageError("a dimension is negative", where=f"profile of '{input}'", got=bounds[0])
        self.shapes[input] = bounds

    def get_shape(self, input: str) -> list[Dims]:  # noqa: A002
        """Min, opt and max of an input's shape; empty when they were not set."""
        return [Dims(dims) for dims in self.shapes.get(input, ())]

    def set_shape_input(self, input: str, min: Iterable[int], opt: Iterable[int], max: Iterable[int]) -> None:  # noqa: A002
        """Set the bounds of the contents of a shape input."""
        self.values[input] = _check(input, min, opt, max)

    def get_shape_input(self, input: str) -> list[list[int]]:  # noqa: A002
        """Min, opt and max contents of a shape input."""
        return [list(values) for values in self.values.get(input, ())]

    def __bool__(self) -> bool:
        return bool(self.shapes or self.values)

    def __repr__(self) -> str:
        bounds = [f"{name}: {_describe(found)}" for name, found in self.shapes.items()]
        bounds += [f"values of {name}: {_describe(found)}" for name, found in self.values.items()]
        return f"<OptimizationProfile {', '.join(bounds) or 'without bounds'}>"


IOptimizationProfile = OptimizationProfile
"""The contract's name."""


def _describe(bounds: Bounds) -> str:
    return ":".join("x".join(map(str, part)) or "scalar" for part in bounds)


def _check(name: str, low: Iterable[int], opt: Iterable[int], high: Iterable[int]) -> Bounds:
    where = f"profile of '{name}'"
    bounds = as_integers(low, where), as_integers(opt, where), as_integers(high, where)
    if len({len(part) for part in bounds}) != 1:
        raise UsageError("min, opt and max have different lengths", where=f"profile of '{name}'", got=bounds)
    for axis, (least, best, most) in enumerate(zip(*bounds, strict=True)):
        if not least <= best <= most:
            raise UsageError(
                f"dimension {axis} breaks min <= opt <= max",
                where=f"profile of '{name}'",
                got=f"{least}, {best}, {most}",
            )
    return bounds
