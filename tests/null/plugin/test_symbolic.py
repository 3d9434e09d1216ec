"""Symbolic dimensions: the same arithmetic as Python's, over values that are not known yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.errors import PluginError
from dovetail.expr import Symbol, evaluate
from dovetail.plugin.symbolic import SymbolicDim, ceil_div, dim_max, dim_min, expr_from_dim

FORMULAS: list[Callable[[Any, Any], Any]] = [
    lambda n, m: n + m * 2 - 1,
    lambda n, m: 3 + n,
    lambda n, m: 10 - n,
    lambda n, m: 2 * n * m,
    lambda n, m: n // m,
    lambda n, m: 100 // m,
    lambda n, m: n % m,
    lambda n, m: -n,
    lambda n, m: ceil_div(n, m),
    lambda n, m: ceil_div(7, m),
    lambda n, m: dim_max(n, m) - dim_min(n, 3),
    lambda n, m: (n == m) * 5,
    lambda n, m: (n < m) + 2 * (n > m),
    lambda n, m: (n - 3) // 2 + 1,
]


@pytest.mark.parametrize("formula", FORMULAS)
@settings(max_examples=15, deadline=None)
@given(n=st.integers(0, 50), m=st.integers(1, 9))
def test_symbolic_and_plain_arithmetic_agree(formula: Callable[[Any, Any], Any], n: int, m: int) -> None:
    expected = int(formula(n, m))
    symbolic = formula(SymbolicDim(Symbol("n")), SymbolicDim(Symbol("m")))
    assert evaluate(expr_from_dim(symbolic), {"n": n, "m": m}) == expected
    constant = formula(SymbolicDim(expr_from_dim(n)), SymbolicDim(expr_from_dim(m)))
    assert int(constant) == expected


def test_a_constant_can_be_branched_on_and_an_unknown_cannot() -> None:
    known, unknown = SymbolicDim(expr_from_dim(3)), SymbolicDim(Symbol("n"))
    assert list(range(known)) == [0, 1, 2]
    assert known == 3
    for use in (lambda: bool(unknown == 3), lambda: int(unknown), lambda: max(unknown, known)):
        with pytest.raises(PluginError, match="has no value yet"):
            use()


def test_what_is_no_dimension_is_refused() -> None:
    with pytest.raises(PluginError, match="must be an integer or made from input dimensions"):
        expr_from_dim(2.5)
