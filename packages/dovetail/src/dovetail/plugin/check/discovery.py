"""Finding inputs that a plugin accepts: what the user gave, and guesses for the rest.

Candidates are tried in a fixed order, each on new objects, from the output types to a run. The first that goes all the
way is taken; when none does, the one that got furthest, so that the rule that stops it can say why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from dovetail.plugin.check.lifecycle import Life
from dovetail.plugin.check.plugin_object import Specimen
from dovetail.plugin.check.problem import Case, InputCase
from dovetail.rules import Blocked
from dovetail.types import DataType

__all__ = ["Discovery", "Wish", "discover"]


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What the user said about the inputs; None is for the checker to guess."""

    cases: tuple[Case, ...] | None = None
    types: tuple[DataType, ...] | None = None
    shape_inputs: tuple[tuple[int, ...], ...] | None = None


_INPUT_COUNTS: Final = (1, 2, 3, 4, 0)
_SHAPES: Final = (
    (2, 3, 8, 8),
    (4, 8),
    (16,),
    (2, 4, 8),
    (2, 3, 4, 4, 4),
    (1, 3, 32, 32),
    (4, 64),
    (2, 8, 64),
)
_TYPES: Final = (
    DataType.FLOAT,
    DataType.HALF,
    DataType.INT32,
    DataType.INT64,
    DataType.INT8,
    DataType.BF16,
    DataType.BOOL,
    DataType.UINT8,
    DataType.FP8,
)
_SHAPE_INPUTS: Final[tuple[tuple[tuple[int, ...], ...], ...]] = (((2,),), ((2, 2),), ((2, 2, 2, 2),))
_STEPS: Final = ("types", "layer", "combinations", "tactics", "sample")
_COMPLETE: Final = 2 * len(_STEPS)
_WITH_SHAPES: Final = 2 * _STEPS.index("combinations")
_WITH_FORMATS: Final = 2 * _STEPS.index("tactics")


@dataclass(frozen=True)
class Discovery:
    """The life that got furthest, how far that is, and what to tell the user about how it was chosen."""

    life: Life
    points: int
    notes: list[str]

    @property
    def is_complete(self) -> bool:
        """Whether it ran to the end."""
        return self.points == _COMPLETE


def discover(make: Callable[[], Specimen], wish: Wish, *, seed: int, keep: Callable[[Specimen], None]) -> Discovery:
    """Try candidates until one runs to the end."""
    exploration = _Exploration(make, seed, keep)
    _explore(exploration, wish)
    life = _with_second_case(exploration)
    return Discovery(life, exploration.points, _notes(life, wish, exploration))


class _Exploration:
    """The candidates that were tried, and the best of them."""

    def __init__(self, make: Callable[[], Specimen], seed: int, keep: Callable[[Specimen], None]) -> None:
        self._make, self._seed, self._keep = make, seed, keep
        self.tried = 0
        self.points = -1
        self.best: Life

    def attempt(self, problem: InputCase) -> int:
        """Try a candidate and keep it when it got further than all before."""
        life = Life(self._make, problem, seed=self._seed, keep=self._keep)
        points = _progress(life)
        self.tried += 1
        if points > self.points:
            self.best, self.points = life, points
        return points


def _progress(life: Life) -> int:
    """Two points a step that succeeds, one for a step whose result is malformed, none for one that raises."""
    points = 0
    for step in _STEPS:
        try:
            getattr(life, step)
        except Blocked:
            return points + (not life.log.raised)
        points += 2
    return points


def _explore(exploration: _Exploration, wish: Wish) -> None:
    for cases in _case_candidates(wish):
        for types in _type_candidates(wish, len(cases[0])):
            points = _explore_variants(exploration, wish, InputCase(types=types, cases=cases))
            if points == _COMPLETE:
                return
            if points >= _WITH_FORMATS:
                break  # Formats were accepted: other types would only hide what stopped the plugin afterwards.


def _explore_variants(exploration: _Exploration, wish: Wish, problem: InputCase) -> int:
    """Try symbols; where the shapes are refused, constants; then shape inputs."""
    problem = replace(problem, shape_inputs=wish.shape_inputs or ())
    variants = [problem]
    if len(problem.cases) == 1:
        variants.append(replace(problem, symbolic=False))
    if wish.shape_inputs is None:
        variants += [replace(problem, shape_inputs=values) for values in _SHAPE_INPUTS]
    points = 0
    for variant in variants:
        points = max(points, exploration.attempt(variant))
        if points >= _WITH_SHAPES:
            break
    return points


def _with_second_case(exploration: _Exploration) -> Life:
    """Add a case of the checker's own, when none was given and the plugin runs it too."""
    life = exploration.best
    problem = life.problem.with_derived_case()
    if exploration.points < _COMPLETE or problem is life.problem:
        return life
    swapped = replace(problem, cases=problem.cases[::-1])
    larger, probe = (Life(life.make, p, seed=life.seed, keep=life.keep) for p in (problem, swapped))
    return larger if _progress(larger) == _progress(probe) == _COMPLETE else life


def _case_candidates(wish: Wish) -> Iterator[tuple[Case, ...]]:
    if wish.cases is not None:
        yield wish.cases
        return
    counts = (len(wish.types),) if wish.types is not None and len(wish.types) > 1 else _INPUT_COUNTS
    for count in counts:
        for shape in _SHAPES if count else _SHAPES[:1]:
            yield ((shape,) * count,)


def _type_candidates(wish: Wish, count: int) -> Iterator[tuple[DataType, ...]]:
    if wish.types is not None:
        yield wish.types * count if len(wish.types) == 1 else wish.types
        return
    if count == 0:
        yield ()
        return
    yield from ((dtype,) * count for dtype in _TYPES)
    if count > 1:
        yield from ((DataType.FLOAT, *(index,) * (count - 1)) for index in (DataType.INT32, DataType.INT64))


def _notes(life: Life, wish: Wish, exploration: _Exploration) -> list[str]:
    notes, tried = [], exploration.tried
    if wish.cases is None or wish.types is None:
        what = "inputs" if wish.cases is None else "types of the inputs"
        notes.append(f"{what} chosen by the checker: {life.problem.describe()} ({tried} candidates tried)")
    if exploration.points < _COMPLETE:
        notes.append(f"no candidate ran to the end; the checks use the one that got furthest (of {tried})")
    if life.problem.has_derived_case:
        notes.append(f"second case added by the checker: {', '.join(map(str, life.problem.cases[-1]))}")
    return notes
