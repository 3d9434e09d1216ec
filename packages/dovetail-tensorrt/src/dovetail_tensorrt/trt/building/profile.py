"""Optimization profiles, whose setters refuse by raising and whose getters answer with nothing."""

from __future__ import annotations

from collections.abc import Iterable

import dovetail

__all__ = ["IOptimizationProfile"]


class IOptimizationProfile(dovetail.OptimizationProfile):
    """Bounds by input name; made by ``Builder.create_optimization_profile``.

    >>> profile = IOptimizationProfile(); profile.set_shape("x", (1,), (2,), (4,)); profile.get_shape("x")
    [Dims(1,), Dims(2,), Dims(4,)]
    """

    __slots__ = ("_extra_memory_target",)

    def __init__(self) -> None:
        super().__init__()
        self._extra_memory_target = 1.0

    @property
    def extra_memory_target(self) -> float:
        """A share of memory that tactics may take beyond the limits; it has no effect here."""
        return self._extra_memory_target

    @extra_memory_target.setter
    def extra_memory_target(self, value: float) -> None:
        if not 0.0 <= value <= 1.0:
            raise ValueError(f"extra_memory_target must lie between 0 and 1, not {value}")
        self._extra_memory_target = float(value)

    def set_shape(self, input: str, min: Iterable[int], opt: Iterable[int], max: Iterable[int]) -> None:  # noqa: A002
        """Set the bounds of an input's shape; ValueError where they contradict each other."""
        _refuse(lambda: super(IOptimizationProfile, self).set_shape(input, min, opt, max))

    def set_shape_input(self, input: str, min: Iterable[int], opt: Iterable[int], max: Iterable[int]) -> None:  # noqa: A002
        """Set the bounds of the contents of a shape input; ValueError where they contradict each other."""
        _refuse(lambda: super(IOptimizationProfile, self).set_shape_input(input, min, opt, max))

    def __bool__(self) -> bool:
        """True: no profile contradicts itself, and one of a network without inputs has nothing to say."""
        return True

    __nonzero__ = __bool__


def _refuse(action: object) -> None:
    try:
        action()  # type: ignore[operator]
    except dovetail.UsageError as error:
        raise ValueError(str(error)) from error
