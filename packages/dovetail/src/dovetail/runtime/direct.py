"""Steps whose kernel writes straight into the planned memory of its output, without an array of its own.

A kernel that can do so has a second form, ``into``, that takes the output as its last argument. NumPy would broadcast
or cast into an output that does not fit, and say nothing; so the ordinary form, whose result is compared with the
plan, runs first for every new set of shapes and types. A kernel has an ``into`` only when its inputs' shapes and types
decide those of its output: what was right once is then right for as long as they stay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dovetail.runtime.steps import Frame, Step

__all__ = ["bind_directly", "write_directly"]

Into = Callable[..., Any]


def write_directly(into: Into, checked: Step, inputs: Sequence[int], target: int) -> Step:
    """The step over ``into``, which has ``checked`` run when shapes or types are not those of the run before."""
    if len(inputs) == 1 and inputs[0] >= 0:
        return _of_one(into, checked, inputs[0], target)
    if len(inputs) == 2 and min(inputs) >= 0:
        return _of_two(into, checked, itemgetter(*inputs, target), target)
    return _of_many(into, checked, inputs, target)


def bind_directly(into: Into, slots: Sequence[int]) -> Callable[[Frame], Callable[[], Any]]:
    """How such a step is bound to its arrays after a run over them: what fitted then fits for as long as they stay."""
    return lambda frame: partial(into, *[frame[index] for index in slots])


def _of_one(into: Into, checked: Step, source: int, target: int) -> Step:
    known: tuple[Any, ...] | None = None

    def run(frame: Frame) -> None:
        nonlocal known
        x, out = frame[source], frame[target]
        now = (x.shape, out.shape, x.dtype, out.dtype)
        if now == known:
            into(x, out)
            return
        known = None  # a run that fails proves nothing, nor does one that put another array in the place of the output
        checked(frame)
        known = now if frame[target] is out else None

    return run


def _of_two(into: Into, checked: Step, fetch: Callable[[Frame], tuple[Any, Any, Any]], target: int) -> Step:
    known: tuple[Any, ...] | None = None

    def run(frame: Frame) -> None:
        nonlocal known
        a, b, out = fetch(frame)
        now = (a.shape, b.shape, out.shape, a.dtype, b.dtype, out.dtype)
        if now == known:
            into(a, b, out)
            return
        known = None
        checked(frame)
        known = now if frame[target] is out else None

    return run


def _of_many(into: Into, checked: Step, inputs: Sequence[int], target: int) -> Step:
    present = [index for index in (*inputs, target) if index >= 0]
    slots = (*inputs, target)
    known: list[Any] | None = None

    def run(frame: Frame) -> None:
        nonlocal known
        now = [(frame[index].shape, frame[index].dtype) for index in present]
        if now == known:
            into(*[frame[index] for index in slots])
            return
        known, out = None, frame[target]
        checked(frame)
        known = now if frame[target] is out else None

    return run
