"""Widening what a plugin is run with: other sizes, an empty input, other types, other field values.

Discovery finds one set of inputs that a plugin accepts. Here the checker varies it, one thing at a time, and keeps what
still runs. What the plugin refuses is no fault by itself: a layer with weights for three channels cannot take five. It
is one when what ``enqueue`` computed does not fit the shape that the plugin declared.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from dovetail.expr import Constant
from dovetail.formats import size_bytes
from dovetail.plugin.check.cases.problem import Case, InputCase
from dovetail.plugin.check.host.calls import CallbackRaised
from dovetail.plugin.check.lifecycle import Life
from dovetail.plugin.check.progress import progress
from dovetail.rules import Blocked
from dovetail.types import DataType

__all__ = ["Refusal", "Widened", "widen_sizes", "widen_types"]

Handle = tuple[tuple[int, int], ...]
"""Dimensions, as input and axis, that vary together."""

_MOST_CASES: Final = 5
_MOST_TOLD: Final = 3
_MOST_CASE_BYTES: Final = 4 << 20
_SLOW_S: Final = 0.03
_QUICK_S: Final = 0.002
_ODD_SIZES: Final = (3, 5, 7, 11, 13, 9, 15, 17)
_TYPES: Final = (DataType.FLOAT, DataType.HALF, DataType.BF16, DataType.INT32, DataType.INT64, DataType.INT8)
_MISFIT: Final = re.compile(
    r"could not broadcast input array from shape (\([\d,]*\)) into shape (\([\d,]*\))"
    r"|non-broadcastable output operand with shape (\([\d,]*\)) doesn't match the broadcast shape (\([\d,]*\))"
    r"|operands could not be broadcast together with shapes (\([\d,]*\)) .*?(\([\d,]*\))\s*$"
)


@dataclass(frozen=True)
class Refusal:
    """Inputs that the plugin did not run with, and why.

    Attributes:
        words: The inputs.
        raised: What a callback raised, if one did.
        is_misfit: Whether a result was computed and did not fit the output that the plugin declared.
    """

    words: str
    raised: CallbackRaised | None
    is_misfit: bool = False

    def describe(self) -> str:
        """The refusal in one line."""
        return f"{self.words}: {self.raised or 'its shapes are not valid there'}"


@dataclass
class Widened:
    """A life with more cases, lives with other inputs, and what was refused."""

    life: Life
    others: list[Life] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)

    def describe(self, before: InputCase) -> list[str]:
        """What was added, and the first things that were refused."""
        notes = []
        cases = [", ".join(map(str, case)) for case in self.life.problem.cases[len(before.cases) :]]
        if cases:
            notes.append(f"cases added by the checker: {'; '.join(cases)}")
        if self.others:
            notes.append(f"also run with {'; '.join(life.problem.describe() for life in self.others)}")
        told = [refusal for refusal in self.refusals if refusal.raised is not None and not refusal.is_misfit]
        return notes + [f"not run: {refusal.describe()}" for refusal in told[:_MOST_TOLD]]


def widen_sizes(life: Life) -> Widened:
    """Add cases: smaller and larger than the main one, odd, of size one, and empty."""
    widened = Widened(life)
    if life.problem.main and len(life.problem.cases) == 1:
        run_s = _measure_s(life)
        most = 2 if run_s > _SLOW_S else _MOST_CASES
        sizes = _find_free_sizes(widened)
        # Blocks and buffers of plugins have up to some thousand elements, which only a quick one is run with often.
        for case in _derive(life.problem.main, sizes, growth=16 if run_s < _QUICK_S else 4):
            _add_case(widened, case, most)
    return widened


def _measure_s(life: Life) -> float:
    """How long a run computes; a check does hundreds. A busy machine does not change the time of the process."""
    prepared = life.prepare()
    prepared.reshape(life.problem.main)
    start = time.process_time()
    prepared.run(life.problem.main)
    return time.process_time() - start


def _find_free_sizes(widened: Widened) -> dict[Handle, int]:
    """The dimensions that may vary, each with a size that works, an odd one if there is any."""
    main, free = widened.life.problem.main, {}
    for handle, odd in zip(_handles(main), (*_ODD_SIZES, *(19,) * 64), strict=False):
        current = main[handle[0][0]][handle[0][1]]
        for size in dict.fromkeys((odd, current * 2, max(current // 2, 2))):
            if size != current and _runs(widened, _resize(main, {handle: size})):
                free[handle] = size
                break
    return free


def _handles(main: Case) -> list[Handle]:
    """Each axis of all inputs at once where they have the same shape, otherwise all dimensions of the same size."""
    if len(set(main)) == 1:
        return [tuple((index, axis) for index in range(len(main))) for axis in range(len(main[0]))]
    places: dict[int, list[tuple[int, int]]] = {}
    for index, shape in enumerate(main):
        for axis, size in enumerate(shape):
            places.setdefault(size, []).append((index, axis))
    return [tuple(found) for size, found in places.items() if size > 1]


def _resize(main: Case, sizes: dict[Handle, int]) -> Case:
    new = {place: size for handle, size in sizes.items() for place in handle}
    return tuple(
        tuple(new.get((index, axis), size) for axis, size in enumerate(shape)) for index, shape in enumerate(main)
    )


def _derive(main: Case, free: dict[Handle, int], *, growth: int) -> Iterator[Case]:
    first = next(iter(_handles(main)), None)
    if first is not None:
        yield _resize(main, {first: 1})
    current = {handle: main[handle[0][0]][handle[0][1]] for handle in free}
    yield _resize(main, free)
    larger = {handle: size + 1 for handle, size in current.items()}
    yield _resize(main, larger | {handle: growth * current[handle] + 1 for handle in list(current)[-1:]})
    yield _resize(main, dict.fromkeys(free, 1))
    for handle in free:
        yield _resize(main, {handle: free[handle]})
    if first is not None:
        yield _resize(main, {first: 0})


def _add_case(widened: Widened, case: Case, most: int) -> None:
    problem = widened.life.problem
    is_empty = any(0 in shape for shape in case)
    if case in problem.cases or (len(problem.full_cases) >= most and not is_empty):
        return
    if not problem.symbolic:
        if not is_empty and _runs(widened, case):
            widened.others.append(widened.life.with_problem(replace(problem, cases=(case,))))
        return
    grown = widened.life.with_problem(replace(problem, cases=(*problem.cases, case)))
    if (is_empty or _runs(widened, case)) and progress(grown).is_complete:
        widened.life = grown


def _runs(widened: Widened, case: Case) -> bool:
    problem = widened.life.problem
    cases = (case, *problem.cases) if problem.symbolic else (case,)
    probe = widened.life.with_problem(replace(problem, cases=cases))
    if _count_bytes(probe, case) > _MOST_CASE_BYTES:
        return False
    if progress(probe).is_complete:
        return True
    raised = probe.log.raised[0] if probe.log.raised else None
    is_misfit = raised is not None and _is_misfit(raised, probe, case)
    widened.refusals.append(Refusal(f"inputs {', '.join(map(str, case))}", raised, is_misfit))
    return False


def _count_bytes(life: Life, case: Case) -> int:
    """The memory of inputs and outputs; 0 where the outputs are not even declared."""
    try:
        outputs = life.descriptors.largest_shapes(case)
    except Blocked:
        return 0
    shapes = zip((*case, *outputs), (*life.problem.types, *life.layer.types), strict=True)
    return sum(size_bytes(shape, dtype) for shape, dtype in shapes)


def _is_misfit(raised: CallbackRaised, life: Life, case: Case) -> bool:
    """Whether NumPy refused to put a result into an output, which is declared with another shape then.

    A dimension that is declared as a constant is a size that the plugin is made for, and other inputs are refused.
    """
    found = _MISFIT.search(" ".join(str(raised.error).split()))
    if raised.method != "enqueue" or not isinstance(raised.error, ValueError) or found is None:
        return False
    if any(1 in shape for shape in case):
        return False  # a size of 1 is broadcast to that of the weights, and only then does not fit
    shapes = [_read_shape(text) for text in found.groups() if text]
    for exprs, declared in zip(life.layer.shapes, life.descriptors.largest_shapes(case), strict=True):
        other = next((shape for shape in shapes if len(shape) == len(declared) and shape != declared), None)
        if declared in shapes and other is not None:
            pairs = zip(exprs, declared, other, strict=True)
            return any(size != got and not isinstance(expr, Constant) for expr, size, got in pairs)
    return False


def _read_shape(text: str) -> tuple[int, ...]:
    return tuple(int(size) for size in text.strip("()").split(",") if size)


def widen_types(widened: Widened) -> None:
    """Add a life for every other type that the plugin accepts, with two of the sizes."""
    problem = widened.life.problem
    kind = next(iter(problem.types), None)
    if kind not in _TYPES:
        return
    accepted: list[Life] = []
    for dtype in _TYPES:
        types = tuple(dtype if old is kind else old for old in problem.types)
        life = widened.life.with_problem(replace(problem, types=types, cases=_two_of(problem.full_cases)))
        if dtype is not kind and progress(life).has_formats:
            accepted.append(life)
    takes_everything = len(accepted) == len(_TYPES) - 1
    for life in accepted:
        _judge_type(widened, life, takes_everything=takes_everything)


def _two_of(cases: Sequence[Case]) -> tuple[Case, ...]:
    return tuple(dict.fromkeys((cases[0], cases[min(2, len(cases) - 1)])))


def _judge_type(widened: Widened, life: Life, *, takes_everything: bool) -> None:
    """Keep a life that runs; where it does not, accepting the type was a promise unless every type is accepted."""
    if progress(life).is_complete:
        widened.others.append(life)
        return
    raised = life.log.raised[0] if life.log.raised else None
    dtype = life.problem.types[0]
    is_promise = dtype.is_float or not takes_everything
    if raised is not None and is_promise and not raised.is_deliberate:
        raised.situation = f"inputs {life.problem.describe()}"
        widened.life.log.raised.append(raised)
    else:
        widened.refusals.append(Refusal(f"inputs of type {dtype.name}", raised))
