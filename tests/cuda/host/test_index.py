"""Index expressions in their simple form are worth what they were worth before."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail_cuda.lower.index import Gathered, Index, Quotient, Remainder, Var, flatten, unflatten


def _evaluate(index: Index, values: dict[str, int]) -> int:
    total = index.constant
    for atom, factor in index.terms:
        match atom:
            case Var():
                total += factor * values[atom.name]
            case Quotient():
                total += factor * (_evaluate(atom.of, values) // atom.by)
            case Remainder():
                total += factor * (_evaluate(atom.of, values) % atom.by)
            case Gathered():
                raise AssertionError("none here")
    return total


@pytest.mark.parametrize(
    ("shape", "other"),
    [
        ((2, 3, 4), (2, 3, 4)),
        ((2, 3, 4), (6, 4)),
        ((6, 4), (2, 3, 4)),
        ((24,), (4, 6)),
        ((1, 24), (3, 1, 8)),
        ((), (1,)),
    ],
)
def test_a_shape_that_is_taken_apart_and_put_together_is_the_position_itself(
    shape: tuple[int, ...], other: tuple[int, ...]
) -> None:
    flat = Index.variable("i", math.prod(shape))
    there = unflatten(flatten(unflatten(flat, shape), shape), other)
    assert flatten(there, other) == flat


def test_what_is_left_of_two_divisions_is_left_of_one() -> None:
    flat = Index.variable("i", 2 * 7 * 9 * 36)
    _, high, wide, _ = unflatten(flat, (2, 7, 9, 36))
    assert high * 9 + wide == (flat // 36) % 63


def test_steps_are_divided_without_what_is_less_than_a_step() -> None:
    row, column = Index.variable("i", 6272), Index.variable("j", 1024)
    assert (row * 1024 + column) // 200704 == row // 196
    assert (row * 1024 + column) % 200704 == (row % 196) * 1024 + column


@st.composite
def _steps(draw: st.DrawFn) -> list[tuple[str, int]]:
    kinds = st.sampled_from(["add", "mul", "div", "mod", "var"])
    return draw(st.lists(st.tuples(kinds, st.integers(1, 12)), min_size=1, max_size=7))


@settings(max_examples=100, deadline=None)
@given(_steps())
def test_what_is_simplified_has_the_same_value(steps: list[tuple[str, int]]) -> None:
    sizes = {"i": 7, "j": 5}
    index = Index.variable("i", 7)
    plain = [lambda values: values["i"]]
    for kind, number in steps:
        before = plain[-1]
        match kind:
            case "add":
                index, after = index + number, lambda v, f=before, n=number: f(v) + n
            case "mul":
                index, after = index * number, lambda v, f=before, n=number: f(v) * n
            case "div":
                index, after = index // number, lambda v, f=before, n=number: f(v) // n
            case "mod":
                index, after = index % number, lambda v, f=before, n=number: f(v) % n
            case _:
                index = index + Index.variable("j", 5) * number
                after = lambda v, f=before, n=number: f(v) + v["j"] * n  # noqa: E731
        plain.append(after)
    low, high = index.bounds
    for i, j in itertools.product(range(sizes["i"]), range(sizes["j"])):
        expected = plain[-1]({"i": i, "j": j})
        assert _evaluate(index, {"i": i, "j": j}) == expected
        assert low <= expected <= high
