"""Finding inputs that a plugin accepts: what the user gave, and guesses for the rest.

Candidates are tried in a fixed order, each on new objects, from the output types to a run. The first that goes all the
way is taken; when none does, the one that got furthest, so that the rule that stops it can say why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from dovetail.plugin.check.cases.problem import Case, InputCase
from dovetail.plugin.check.lifecycle import Life
from dovetail.plugin.check.progress import Progress, progress
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
_MIXED_CASES: Final[tuple[Case, ...]] = (
    ((2, 3, 8, 8), (3,)),
    ((2, 4, 8), (8,)),
    ((4, 8), (8, 4)),
    ((4, 8), (4,)),
    ((2, 3, 8, 8), (3,), (3,)),
    ((2, 4, 8), (8,), (8,)),
    ((4, 8), (8, 6), (6,)),
    ((2, 3, 8, 8), (3,), (3,), (3,), (3,)),
)
"""Inputs of different shapes: one with weights, a product, with weights and biases, with statistics."""
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


@dataclass(frozen=True)
class Discovery:
    """The life that got furthest, how far that is, and what to tell the user about how it was chosen."""

    life: Life
    reached: Progress
    notes: list[str]


def discover(make_life: Callable[[InputCase], Life], wish: Wish) -> Discovery:
    """Try candidates until one runs to the end."""
    exploration = _Exploration(make_life)
    _explore(exploration, wish)
    return Discovery(exploration.best, exploration.reached, _notes(wish, exploration))


class _Exploration:
    """The candidates that were tried, and the best of them."""

    def __init__(self, make_life: Callable[[InputCase], Life]) -> None:
        self._make_life = make_life
        self.tried = 0
        self.reached = Progress()
        self.best: Life

    def attempt(self, problem: InputCase) -> Progress:
        """Try a candidate and keep it when it got further than all before."""
        life = self._make_life(problem)
        reached = progress(life)
        self.tried += 1
        if reached > self.reached:
            self.best, self.reached = life, reached
        return reached


def _explore(exploration: _Exploration, wish: Wish) -> None:
    for cases in _case_candidates(wish):
        for types in _type_candidates(wish, len(cases[0])):
            reached = _explore_variants(exploration, wish, InputCase(types=types, cases=cases))
            if reached.is_complete:
                return
            if reached.has_formats:
                break  # Formats were accepted: other types would only hide what stopped the plugin afterwards.


def _explore_variants(exploration: _Exploration, wish: Wish, problem: InputCase) -> Progress:
    """Try symbols; where the shapes are refused, constants; then shape inputs."""
    problem = replace(problem, shape_inputs=wish.shape_inputs or ())
    variants = [problem]
    if len(problem.cases) == 1:
        variants.append(replace(problem, symbolic=False))
    if wish.shape_inputs is None:
        variants += [replace(problem, shape_inputs=values) for values in _SHAPE_INPUTS]
    reached = Progress()
    for variant in variants:
        reached = max(reached, exploration.attempt(variant))
        if reached.has_shapes:
            break
    return reached


def _case_candidates(wish: Wish) -> Iterator[tuple[Case, ...]]:
    if wish.cases is not None:
        yield wish.cases
        return
    counts = (len(wish.types),) if wish.types is not None and len(wish.types) > 1 else _INPUT_COUNTS
    for count in counts:
        for shape in _SHAPES if count else _SHAPES[:1]:
            yield ((shape,) * count,)
    yield from ((case,) for case in _MIXED_CASES if len(case) in counts or counts is _INPUT_COUNTS)


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


def _notes(wish: Wish, exploration: _Exploration) -> list[str]:
    notes, tried = [], exploration.tried
    if wish.cases is None or wish.types is None:
        what = "inputs" if wish.cases is None else "types of the inputs"
        notes.append(f"{what} chosen by the checker: {exploration.best.problem.describe()} ({tried} candidates tried)")
    if not exploration.reached.is_complete:
        notes.append(f"no candidate ran to the end; the checks use the one that got furthest (of {tried})")
    return notes
