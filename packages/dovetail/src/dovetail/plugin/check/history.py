"""What a run owes to the runs before it on the same object: other inputs, many runs, inputs almost the same."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from dovetail.plugin.check.cases.problem import make_inputs
from dovetail.plugin.check.host.calls import CallbackRaised
from dovetail.plugin.check.host.runs import Run, disagreement
from dovetail.plugin.check.lifecycle import Prepared

if TYPE_CHECKING:
    from dovetail.plugin.check.driver import CheckedPlugin
    from dovetail.plugin.check.lives import Cell

__all__ = ["find_memory_difference"]

_LEAST_RUNS: Final = 20
_MOST_RUNS: Final = 300
_MORE_RUNS_S: Final = 0.5
"""After the least number of runs there are more only for so long, on the clock of the thread: others may be busy."""
_LEFT_RUNS: Final = 2
"""Runs over memory that an earlier run left: a plugin may clear it every second time."""
_PLACES: Final = {"first": 0.0, "middle": 0.5, "last": 1.0}


def find_memory_difference(subject: CheckedPlugin) -> str | None:
    """How a run of one object differs from that of a new object, in words."""
    case = subject.main_cell.case
    expected = _prepare(subject).run(case, variant=1)
    prepared = _prepare(subject)
    first = prepared.run(case)
    found = disagreement(prepared.run(case, variant=1), expected)
    if found:
        return f"inputs A, then B: {found} on a new object"
    found = disagreement(prepared.run(case), first)
    if found:
        return f"inputs A, then B, then A again: {found} the first time"
    return (
        _find_after_many(subject, prepared, first)
        or _find_in_same_memory(subject, expected)
        or _find_after_alike(subject)
        or _find_in_left_memory(subject)
    )


def _prepare(subject: CheckedPlugin) -> Prepared:
    prepared = subject.life.prepare()
    prepared.reshape(subject.main_cell.case)
    return prepared


def _find_after_many(subject: CheckedPlugin, prepared: Prepared, first: Run) -> str | None:
    """How a run changes when there were many before it."""
    end_s = time.thread_time() + _MORE_RUNS_S
    for number in range(1, _MOST_RUNS + 1):
        if number > _LEAST_RUNS and time.thread_time() > end_s:
            break
        try:
            found = disagreement(prepared.run(subject.main_cell.case), first)
        except CallbackRaised as raised:
            return f"inputs A, {number} times more: {raised}"
        if found:
            return f"inputs A, {number} times more: {found} the first time"
    return None


def _find_in_left_memory(subject: CheckedPlugin) -> str | None:
    """Compare later runs of every combination, tactic and case over memory that the last run left.

    This is done last: a plugin with state in its class, which R54 judges, is disturbed by other objects.
    """
    if subject.depends_on_garbage:
        return None  # judged by R44 and R45
    for cell in subject.all_cells:
        found = _find_in_left_memory_of(cell)
        if found:
            return f"{cell.describe()}: {found}"
    return None


def _find_in_left_memory_of(cell: Cell) -> str | None:
    """Compare runs of one object over outputs and a workspace that its last run left with a run of a new object."""
    prepared = cell.life.prepare(formats=cell.formats, tactic=cell.tactic)
    prepared.reshape(cell.case)
    bench = prepared.bench(cell.case)
    prepared.run_bench(bench, cell.case)
    for number in range(2, 2 + _LEFT_RUNS):
        words = f"run {number} of one object, with outputs and workspace as run {number - 1} left them"
        try:
            found = disagreement(prepared.run_again(bench, cell.case), cell.first)
        except CallbackRaised as raised:
            return f"{words}: {raised}"
        if found:
            return f"{words}: {found} on a new object"
    return None


def _find_in_same_memory(subject: CheckedPlugin, expected: Run) -> str | None:
    """How a run changes when other numbers lie where those of the run before were."""
    case, prepared = subject.main_cell.case, _prepare(subject)
    bench = prepared.bench(case)
    prepared.run_bench(bench, case)
    subject.memory.drop(bench)
    bench.refill(prepared.bench(case, variant=1))
    found = disagreement(prepared.run_bench(bench, case), expected)
    return f"inputs A, then B in the same memory: {found} on a new object" if found else None


def _find_after_alike(subject: CheckedPlugin) -> str | None:
    """How a run changes when the inputs of the run before were the same but for one element."""
    case, life = subject.main_cell.case, subject.life
    inputs, others = (make_inputs(life.problem, case, seed=life.seed + more) for more in (0, 1000))
    for name, place in _PLACES.items():
        mixed = [_mix(one, other, place) for one, other in zip(inputs, others, strict=True)]
        new, used = _prepare(subject), _prepare(subject)
        used.run(case)
        expected, run = (one.run_bench(one.bench(case, arrays=mixed), case) for one in (new, used))
        found = disagreement(run, expected)
        if found:
            return f"inputs A, then A with another {name} element: {found} on a new object"
    return None


def _mix(one: npt.NDArray[Any], other: npt.NDArray[Any], place: float) -> npt.NDArray[Any]:
    """An array with one element of another, at a part of its length."""
    mixed = np.array(one)
    index = int(place * (mixed.size - 1)) if mixed.size else slice(0)
    mixed.reshape(-1)[index] = other.reshape(-1)[index]
    return mixed
