"""Sizes as polynomials: that they are right for every number, that equal ones are one, and that they stay short."""

from __future__ import annotations

import gc

from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.expr import evaluate
from dovetail.network.inference.dim_polynomials import (
    Polynomial,
    divide_exactly,
    find_factor,
    floor_div,
    make_constant,
    make_symbol,
    maximum,
    minimum,
)

H, W = make_symbol("h"), make_symbol("w")
STEPS = st.lists(st.tuples(st.integers(-3, 3), st.integers(-5, 5), st.integers(1, 6)), min_size=1, max_size=4)


def divide(value: Polynomial, divisor: int) -> Polynomial:
    result = floor_div(value, make_constant(divisor))
    assert result is not None
    return result


def stride(value: Polynomial, offset: int, step: int) -> Polynomial:
    """The size after a convolution."""
    return divide(value + make_constant(offset), step) + make_constant(1)


@given(STEPS, st.integers(0, 40), st.integers(0, 40))
@settings(max_examples=150, deadline=None)
def test_divisions_of_divisions(steps: list[tuple[int, int, int]], h: int, w: int) -> None:
    value, expected = H, h
    for times, offset, divisor in steps:
        value = divide(value * make_constant(times) + W + make_constant(offset), divisor)
        expected = (expected * times + w + offset) // divisor
    assert evaluate(value.to_expr(), {"h": h, "w": w}) == expected


@given(STEPS, STEPS, st.integers(1, 40), st.integers(1, 40))
@settings(max_examples=150, deadline=None)
def test_maxima_minima_and_least_values(
    one: list[tuple[int, int, int]], two: list[tuple[int, int, int]], h: int, w: int
) -> None:
    values, numbers = [], []
    for steps, symbol, number in ((one, H, h), (two, W, w), (two, H, h)):
        value, expected = symbol, number
        for times, offset, divisor in steps:
            value = divide(value * make_constant(times) + make_constant(offset), divisor)
            expected = (expected * times + offset) // divisor
        values.append(value)
        numbers.append(expected)
    largest, smallest = maximum(values), minimum(values)
    assert evaluate(largest.to_expr(), {"h": h, "w": w}) == max(numbers)
    assert evaluate(smallest.to_expr(), {"h": h, "w": w}) == min(numbers)
    assert maximum([largest, values[0]]) == largest
    assert minimum([values[1], smallest]) == smallest
    for value, number in zip([*values, largest, smallest], [*numbers, max(numbers), min(numbers)], strict=True):
        assert value.least is None or value.least <= number


def test_of_one_number_there_is_one_form() -> None:
    assert stride(H, -1, 2) == divide(H + make_constant(1), 2)  # a padded and a rounded up half
    assert divide(H * make_constant(-1), 2) * make_constant(-1) == divide(H + make_constant(1), 2)
    assert divide(divide(H, 2), 2) == divide(H, 4)
    assert divide(H * make_constant(2) + make_constant(3), 4) == divide(H + make_constant(1), 2)


def test_doubled_and_halved_is_the_same() -> None:
    half = stride(H, -1, 2)
    assert stride(half * make_constant(2), -1, 2) == half


def test_shared_symbols_are_cancelled() -> None:
    assert divide_exactly(H * W * make_constant(6), W * make_constant(4)) == divide(H * make_constant(3), 2)
    assert divide_exactly(H * W, H * W) == make_constant(1)
    above = maximum([H, make_constant(1)])
    assert floor_div(above * W, above) == W
    assert floor_div(above, above) == make_constant(1)
    assert floor_div(W, W) != make_constant(1), "the quotient has no value where W is zero"
    rest = floor_div(H * W, W + make_constant(1))
    assert rest is not None
    assert evaluate(rest.to_expr(), {"h": 5, "w": 3}) == 3
    assert rest.least == 0
    below = floor_div(H - make_constant(9), W)
    assert below is not None
    assert below.least is None
    assert floor_div(H, make_constant(0)) is None


def test_a_bound_decides_between_sizes() -> None:
    cut = minimum([H, make_constant(32)])
    assert maximum([H, cut]) == H
    assert minimum([maximum([H, W]), W]) == W
    assert maximum([H, divide(H, 2)]) == H


def test_a_deep_network_has_short_sizes() -> None:
    value = H
    for _ in range(60):
        value = maximum([stride(value, -1, 2), stride(W, -1, 2)]) + W
    assert len(value.text) < 40
    assert value.symbols == {"h", "w"}
    assert len(value.describe()) < 2000


def test_names_are_kept_as_long_as_sizes_use_them() -> None:
    value = stride(make_symbol("only_here"), 4, 7)
    (name,) = (factor.name for factor in value.factors)
    assert find_factor(name).symbols == {"only_here"}
    again = make_symbol(name)
    assert again.symbols == {"only_here"}
    assert value.describe() == f"{again.describe()} + 1"


def test_texts() -> None:
    assert (H * W - H * make_constant(2) + make_constant(1)).text == "h*w - 2*h + 1"
    assert (make_constant(0) - H).text == "-h"
    assert make_constant(0).text == "0"
    gc.collect()
    assert divide(H, 2).describe() == "floor((h)/(2))"
