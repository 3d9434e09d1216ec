"""Dimension expressions: values, bounds, and the form in a plan."""

from __future__ import annotations

import itertools
import random
from functools import reduce

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.errors import UsageError
from dovetail.expr import (
    Constant,
    DimensionOperation,
    Expr,
    IExprBuilder,
    Operation,
    Symbol,
    decode_expr,
    encode_expr,
    evaluate,
    interval,
    substitute,
)

B = IExprBuilder()
O = DimensionOperation  # noqa: E741 - read as the contract's name
N, M = Symbol("n"), Symbol("m")
CHAINS = (O.SUM, O.SUB, O.PROD, O.MAX, O.MIN)


def join(operation: DimensionOperation, first: Expr, second: Expr) -> Expr:
    joined = B.operation(operation, first, second)
    assert joined is not None
    return joined


def trees() -> st.SearchStrategy[Expr]:
    leaves = st.one_of(st.integers(-5, 6).map(Constant), st.sampled_from((N, M)))
    return st.recursive(
        leaves, lambda parts: st.builds(Operation, st.sampled_from(list(O)), parts, parts), max_leaves=7
    )


def list_values(expr: Expr, n_range: tuple[int, int], m_range: tuple[int, int]) -> list[int]:
    """Return the values at every point; those where the expression divides by zero are left out."""
    values = []
    for n, m in itertools.product(*(range(low, high + 1) for low, high in (n_range, m_range))):
        try:
            values.append(evaluate(expr, {"n": n, "m": m}))
        except UsageError:
            continue
    return values


@pytest.mark.parametrize(
    ("operation", "divisor", "bounds"),
    [(O.FLOOR_DIV, -2, (2, 4)), (O.CEIL_DIV, -3, (2, 2)), (O.FLOOR_DIV, 3, (-3, -2)), (O.CEIL_DIV, 3, (-2, -1))],
)
def test_bounds_of_a_negative_dividend(operation: DimensionOperation, divisor: int, bounds: tuple[int, int]) -> None:
    expr = join(operation, join(O.SUB, Constant(0), N), Constant(divisor))
    assert interval(expr, {"n": (4, 8)})[0] <= bounds[0]
    assert interval(expr, {"n": (4, 8)})[1] >= bounds[1]


def test_bounds_of_a_constant_negative_divisor_are_exact() -> None:
    expr = join(O.FLOOR_DIV, join(O.SUB, Constant(0), N), Constant(-2))
    assert interval(expr, {"n": (4, 8)}) == (2, 4)


def test_bounds_of_a_divisor_of_both_signs() -> None:
    expr = join(O.FLOOR_DIV, Constant(12), N)
    assert interval(expr, {"n": (-3, 2)}) == (-12, 12)
    assert interval(expr, {"n": (-3, 0)}) == (-12, -4)
    assert interval(expr, {"n": (0, 4)}) == (3, 12)


@given(trees(), st.tuples(st.integers(-6, 6), st.integers(0, 5)), st.tuples(st.integers(-3, 4), st.integers(0, 3)))
@settings(max_examples=400, deadline=None)
def test_every_value_is_inside_the_bounds(expr: Expr, n: tuple[int, int], m: tuple[int, int]) -> None:
    n_range, m_range = (n[0], sum(n)), (m[0], sum(m))
    low, high = interval(expr, {"n": n_range, "m": m_range})
    assert all(low <= value <= high for value in list_values(expr, n_range, m_range))


# plans


def test_a_sum_of_many_symbols_is_read_again() -> None:
    expr = reduce(lambda one, other: join(O.SUM, one, other), [Symbol(f"s{index}") for index in range(3000)])
    stored = msgspec.msgpack.decode(msgspec.msgpack.encode(encode_expr(expr)))
    values = {f"s{index}": index for index in range(3000)}
    assert evaluate(decode_expr(stored), values) == sum(values.values())


@given(st.lists(st.tuples(st.sampled_from(CHAINS), st.booleans(), trees()), min_size=210, max_size=400))
@settings(max_examples=15, deadline=None)
def test_every_built_chain_is_read_again(steps: list[tuple[DimensionOperation, bool, Expr]]) -> None:
    expr: Expr = N
    for operation, is_left, other in steps:
        try:
            expr = join(operation, *((expr, other) if is_left else (other, expr)))
        except UsageError:  # too large for a plan, or constants that overflow: the expression before it is stored
            break
    decoded = decode_expr(encode_expr(expr))
    assert list_values(decoded, (1, 2), (1, 2)) == list_values(expr, (1, 2), (1, 2))


@pytest.mark.parametrize("operation", CHAINS)
@pytest.mark.parametrize("is_left", [True, False])
def test_deep_chains_keep_their_value(operation: DimensionOperation, is_left: bool) -> None:
    rng = random.Random(7)
    operands: list[Expr] = [rng.choice((N, M, Constant(rng.randint(-3, 3)))) for _ in range(600)]
    values, expr = {"n": 2, "m": -1}, N
    expected = values["n"]
    for operand in operands:
        pair, numbers = (expr, operand), (Constant(expected), Constant(evaluate(operand, values)))
        expr = join(operation, *(pair if is_left else pair[::-1]))
        expected = evaluate(Operation(operation, *(numbers if is_left else numbers[::-1])), {})
    assert evaluate(decode_expr(encode_expr(expr)), values) == expected


def test_expressions_nested_too_deeply_are_refused_when_they_are_built() -> None:
    exprs: list[Expr] = [N]

    def grow() -> None:
        for divisor in range(2, 400):
            exprs.append(join(O.FLOOR_DIV, join(O.SUM, exprs[-1], M), Constant(divisor)))

    with pytest.raises(UsageError, match="a dimension expression is too large for a plan"):
        grow()
    assert decode_expr(encode_expr(exprs[-1])) == exprs[-1]


def test_expressions_that_double_are_refused_when_they_are_built() -> None:
    exprs: list[Expr] = [N]

    def grow() -> None:
        for _ in range(100):
            exprs.append(join(O.SUM, exprs[-1], exprs[-1]))

    with pytest.raises(UsageError, match="a dimension expression is too large for a plan"):
        grow()
    assert len(str(encode_expr(exprs[-1]))) < 2_000_000


def test_expressions_without_a_builder_are_checked_when_they_are_stored() -> None:
    deep = reduce(lambda one, _: Operation(O.FLOOR_DIV, one, M), range(5000), N)
    with pytest.raises(UsageError, match="too large for a plan"):
        encode_expr(deep)
    doubled = reduce(lambda one, _: Operation(O.SUM, one, one), range(300), N)
    with pytest.raises(UsageError, match="too large for a plan"):
        encode_expr(doubled)
    with pytest.raises(UsageError, match="does not fit 64 bits"):
        encode_expr(Operation(O.SUM, N, Constant(2**64)))


def test_a_replacement_that_makes_an_expression_too_large_is_refused() -> None:
    big = reduce(lambda one, _: join(O.SUM, one, one), range(14), N)
    with pytest.raises(UsageError, match="too large for a plan"):
        substitute(big, {"n": reduce(lambda one, _: join(O.SUM, one, one), range(5), M)})


# constants


@pytest.mark.parametrize("value", [2.7, "3", None])
def test_a_constant_other_than_an_integer_is_refused(value: object) -> None:
    with pytest.raises(UsageError, match="is not an integer"):
        B.constant(value)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 2**70])
def test_a_constant_of_more_than_64_bits_is_refused(value: int) -> None:
    with pytest.raises(UsageError, match="does not fit 64 bits"):
        B.constant(value)


@pytest.mark.parametrize(
    ("operation", "first", "second"),
    [
        (O.PROD, 2**63 - 1, 2**63 - 1),
        (O.SUM, 2**63 - 1, 1),
        (O.SUB, -(2**63), 1),
        (O.FLOOR_DIV, -(2**63), -1),
        (O.CEIL_DIV, -(2**63), -1),
    ],
)
def test_constants_that_overflow_are_refused(operation: DimensionOperation, first: int, second: int) -> None:
    with pytest.raises(UsageError, match="overflows 64 bits"):
        B.operation(operation, B.constant(first), B.constant(second))
