"""Sizes that vary are worth what integers are worth, for every shape of a profile."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.errors import ProviderError
from dovetail.expr import evaluate
from dovetail_cuda.compile.arguments import list_sizes, name_sizes
from dovetail_cuda.lower.index import Gathered, Index, Quotient, Remainder, Var, flatten, unflatten
from dovetail_cuda.lower.sizes import (
    divide,
    estimate,
    expr_from_size,
    find_common,
    greatest,
    is_below,
    is_fixed,
    least,
    make_symbol,
    may_exceed,
)

SHAPES = [{"s": s, "t": t} for s, t in itertools.product((1, 2, 5, 9), (2, 3, 8))]
S, T = make_symbol("s", 1, 4, 9), make_symbol("t", 2, 3, 8)
_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
}


def _at(size: int, shape: dict[str, int]) -> int:
    return evaluate(expr_from_size(size), shape)


@st.composite
def _formulas(draw: st.DrawFn, depth: int = 3) -> Any:
    if not depth or draw(st.booleans()):
        return draw(st.sampled_from(["s", "t", 1, 2, 3, 16]))
    operation = draw(st.sampled_from(list(_OPERATIONS)))
    first = draw(_formulas(depth - 1))
    second = draw(st.sampled_from(["s", "t", 2, 3, 16])) if operation in "//%" else draw(_formulas(depth - 1))
    return operation, first, second


def _compute(formula: Any, values: dict[str, Any]) -> Any:
    if isinstance(formula, tuple):
        return _OPERATIONS[formula[0]](*(_compute(part, values) for part in formula[1:]))
    return values.get(formula, formula)


@settings(max_examples=150, deadline=None)
@given(_formulas(), _formulas())
def test_arithmetic_gives_what_it_gives_for_integers(formula: Any, other: Any) -> None:
    size, second = (_compute(each, {"s": S, "t": T}) for each in (formula, other))
    even = None if is_fixed(second) and second == 0 else divide(size, second)
    for shape in SHAPES:
        value, number = _compute(formula, shape), _compute(other, shape)
        assert _at(size, shape) == value
        assert least(size) <= value <= greatest(size)
        assert not is_below(size, second) or value < number
        assert even is None or _at(even, shape) * number == value
        assert may_exceed(size, 7) or value <= 7


@settings(max_examples=60, deadline=None)
@given(_formulas(2), st.sampled_from(["<", "<=", ">", ">="]), st.integers(-4, 40))
def test_a_comparison_holds_for_all_shapes_or_is_refused(formula: Any, sign: str, number: int) -> None:
    compare: dict[str, Callable[[Any, Any], bool]] = {
        "<": lambda a, b: a < b,
        "<=": lambda a, b: a <= b,
        ">": lambda a, b: a > b,
        ">=": lambda a, b: a >= b,
    }
    answers = {compare[sign](_compute(formula, shape), number) for shape in SHAPES}
    size = _compute(formula, {"s": S, "t": T})
    if len(answers) > 1:
        with pytest.raises(ProviderError, match="some shapes of the profile only"):
            compare[sign](size, number)
        return
    with contextlib.suppress(ProviderError):  # bounds may be wider than what occurs
        assert compare[sign](size, number) in answers


def test_what_does_not_vary_is_an_integer() -> None:
    assert (S + 3) - S == 3
    assert make_symbol("n", 4, 4, 4) == 4
    assert (S * T * 64 - 1) // (S * 64) == T - 1
    assert find_common([12 * S, 8 * S * T]) == 4 * S
    assert estimate(S * T + 1) == 13


def test_a_size_is_no_number_by_itself() -> None:
    for use in (int, float, range):
        with pytest.raises(ProviderError, match=r"2\*s must be the same for all shapes"):
            use(2 * S)  # type: ignore[arg-type,operator]


def test_sizes_become_parameters() -> None:
    text = f"def kernel(p0, EARLY: tl.constexpr):\n    x = {S * 2} + {T} * {S * 2} + {make_symbol('u', 1, 2, None)}"
    named, types = name_sizes(text)
    assert named == "def kernel(p0, n0, n1, n2, EARLY: tl.constexpr):\n    x = n0 + n1 * n0 + n2"
    assert types == {"n0": "i32", "n1": "i32", "n2": "i64"}
    assert list_sizes(text)[:2] == [2 * S, T]


# indices over them


def _evaluate(index: Index, values: dict[str, int], shape: dict[str, int]) -> int:
    total = _at(index.constant, shape)
    for atom, factor in index.terms:
        match atom:
            case Var():
                worth = values[atom.name]
            case Quotient():
                worth = _evaluate(atom.of, values, shape) // _at(atom.by, shape)
            case Remainder():
                worth = _evaluate(atom.of, values, shape) % _at(atom.by, shape)
            case Gathered():
                raise AssertionError("none here")
        total += _at(factor, shape) * worth
    return total


@pytest.mark.parametrize(
    ("shape", "other"),
    [((S, T, 8), (S, T * 8)), ((S * T, 8), (S, T, 2, 4)), ((S, 4, T), (4 * S, T)), ((8, S), (2, 4, S)), ((T,), (1, T))],
)
def test_a_shape_that_is_taken_apart_and_put_together_is_the_position_itself(
    shape: tuple[int, ...], other: tuple[int, ...]
) -> None:
    count = 1
    for size in shape:
        count = count * size
    flat = Index.variable("i", count)
    assert flatten(unflatten(flatten(unflatten(flat, shape), shape), other), other) == flat


@settings(max_examples=120, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["add", "mul", "div", "mod", "var"]), st.sampled_from(["s", "t", 2, 3, 8])),
        min_size=1,
        max_size=6,
    )
)
def test_an_index_that_is_simplified_has_the_same_value(steps: list[tuple[str, Any]]) -> None:
    sizes: dict[Any, Any] = {"s": S, "t": T}
    index = Index.variable("i", S * 4)
    for kind, number in steps:
        index = _step(index, kind, sizes.get(number, number))
    for shape in SHAPES[::3]:
        for i, j in itertools.product(range(shape["s"] * 4), range(shape["t"])):
            expected = i
            for kind, number in steps:
                expected = _plain_step(expected, kind, shape.get(number, number), j)
            assert _evaluate(index, {"i": i, "j": j}, shape) == expected


def _step(index: Index, kind: str, number: int) -> Index:
    match kind:
        case "add":
            return index + number
        case "mul":
            return index * number
        case "div":
            return index // number
        case "mod":
            return index % number
        case _:
            return index + Index.variable("j", T) * number


def _plain_step(value: int, kind: str, number: int, j: int) -> int:
    match kind:
        case "add":
            return value + number
        case "mul":
            return value * number
        case "div":
            return value // number
        case "mod":
            return value % number
        case _:
            return value + j * number
