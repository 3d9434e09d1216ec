"""Symbolic integers of dimension expressions, of plugins and of shape inference against Python's integers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import onnx_ir as ir
import pytest
from hypothesis import given, settings

from dovetail.errors import UsageError
from dovetail.expr import DimensionOperation, Expr, IExprBuilder, Symbol, decode_expr, encode_expr, evaluate, interval
from dovetail.network.inference.dim_exprs import (
    dim_from_expr,
    expr_from_dim,
    make_dim,
    max_of,
    min_of,
    polynomial_of,
    settle,
)
from dovetail.plugin.symbolic import SymbolicDim, ceil_div, dim_max, dim_min
from tests.support.symbolic_integers import (
    DIM,
    ELEMENT,
    OPERATIONS,
    RANGES,
    Implementation,
    Tree,
    check_bounds,
    check_values,
    list_values,
    trees,
)

B = IExprBuilder()
CONTRACT = tuple(name for name in OPERATIONS if name != "mod")
INFERRED = tuple(name for name in OPERATIONS if name not in ("equal", "less"))
PYTHON = {name: OPERATIONS[name] for name in ("sum", "sub", "prod", "floor_div", "ceil_div", "mod")}


def _at_runtime(expr: Expr, values: Mapping[str, int]) -> int:
    """Evaluate the expression that a plan stores."""
    return evaluate(decode_expr(encode_expr(expr)), values)


def _dim_value(dim: Any, values: Mapping[str, int]) -> int | None:
    expr = expr_from_dim(dim)
    return None if expr is None else _at_runtime(expr, values)


def _keep_unknown(apply: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """The library has no operators with an integer on the left for dimensions that are unknown."""

    def compute(first: Any, second: Any) -> Any:
        is_unknown = any(isinstance(dim, ir.SymbolicDim) and dim.value is None for dim in (first, second))
        return ir.SymbolicDim(None) if is_unknown else apply(first, second)

    return compute


def _least_of(dim: Any) -> tuple[float, float]:
    polynomial = polynomial_of(dim)
    least = None if polynomial is None else polynomial.least
    return (-math.inf if least is None else float(least)), math.inf


EXPRS = Implementation(
    symbols={name: Symbol(name) for name in RANGES},
    operations={name: partial(B.operation, DimensionOperation[name.upper()]) for name in CONTRACT},
    constant=B.constant,
    evaluate=_at_runtime,
    bounds=lambda expr: interval(expr, RANGES),
)
PLUGIN = Implementation(
    symbols={name: SymbolicDim(Symbol(name)) for name in RANGES},
    operations={
        **PYTHON,
        "ceil_div": ceil_div,
        "max": dim_max,
        "min": dim_min,
        "equal": lambda a, b: a == b,
        "less": lambda a, b: a < b,
    },
    constant=lambda value: SymbolicDim(B.constant(value)),
    evaluate=lambda dim, values: _at_runtime(dim.expr, values),
    bounds=lambda dim: interval(dim.expr, RANGES),
)
INFERENCE = Implementation(
    symbols={name: settle(ir.SymbolicDim(name)) for name in RANGES},
    operations={name: _keep_unknown(apply) for name, apply in {**PYTHON, "max": max_of, "min": min_of}.items()},
    constant=int,
    evaluate=_dim_value,
    bounds=_least_of,
    raises_every_division=False,
)
SYMBOLS: dict[str, Any] = {"n": DIM, "m": ELEMENT}


@given(trees(CONTRACT))
@settings(max_examples=300, deadline=None)
def test_dimension_expressions(tree: Tree) -> None:
    expr = check_values(tree, EXPRS)
    if expr is not None:
        check_bounds(tree, expr, EXPRS)


@given(trees())
@settings(max_examples=300, deadline=None)
def test_dimensions_of_quick_layers(tree: Tree) -> None:
    dim = check_values(tree, PLUGIN)
    if dim is not None:
        check_bounds(tree, dim, PLUGIN)


@given(trees(INFERRED))
@settings(max_examples=500, deadline=None)
def test_dimensions_of_shape_inference(tree: Tree) -> None:
    dim = check_values(tree, INFERENCE)
    if dim is not None:
        check_bounds(tree, dim, INFERENCE)


@given(trees(INFERRED))
@settings(max_examples=200, deadline=None)
def test_dimensions_that_a_file_or_a_plugin_names(tree: Tree) -> None:
    """The text of a dimension and its expression stand for the same number."""
    dim = check_values(tree, INFERENCE)
    if not isinstance(dim, ir.SymbolicDim) or dim.value is None:
        return
    again = settle(ir.SymbolicDim(dim.value))
    expr = expr_from_dim(dim)
    told = None if expr is None else dim_from_expr(expr, {})
    for point, value in list_values(tree):
        if value is not None:
            assert _dim_value(again, point) in (value, None), point
            assert told is None or _dim_value(told, point) in (value, None), point


@given(trees(INFERRED, max_leaves=5))
@settings(max_examples=200, deadline=None)
def test_signs_that_sympy_may_rely_on(tree: Tree) -> None:
    dim = check_values(tree, INFERENCE)
    if not isinstance(dim, ir.SymbolicDim) or dim._expr is None:
        return
    for point, value in list_values(tree):
        if value is not None:
            assert not dim._expr.is_positive or value > 0, point
            assert not dim._expr.is_nonnegative or value >= 0, point


UNDEFINED = [
    ("mod", DIM, DIM),
    ("floor_div", DIM, DIM),
    ("ceil_div", DIM, DIM),
    ("floor_div", ("prod", DIM, ELEMENT), DIM),
    ("mod", ("prod", 2, ELEMENT), ELEMENT),
    ("floor_div", ("prod", 2, DIM), DIM),
    ("floor_div", 0, DIM),
    ("mod", 7, ELEMENT),
    ("floor_div", ("sum", ("prod", DIM, 2), DIM), DIM),
]


@pytest.mark.parametrize("tree", UNDEFINED, ids=str)
@pytest.mark.parametrize("implementation", [PLUGIN, INFERENCE], ids=["plugin", "inference"])
def test_division_by_a_dimension_of_zero_raises(tree: Tree, implementation: Implementation) -> None:
    built = check_values(tree, implementation)
    with pytest.raises(UsageError, match="divides by zero"):
        implementation.evaluate(built, {DIM: 0, ELEMENT: 0})


@pytest.mark.parametrize(("name", "least"), [(DIM, 0), (ELEMENT, None)])
def test_a_maximum_is_not_simplified_below_its_bound(name: str, least: int | None) -> None:
    dim = settle(ir.SymbolicDim(name))
    assert max_of(1, dim) != dim
    assert (max_of(0, dim) == dim) == (least == 0)
    assert min_of(1, dim) != 1


def test_dimensions_too_large_for_a_plan_are_unknown() -> None:
    dim = settle(ir.SymbolicDim(DIM))
    other = settle(ir.SymbolicDim(ELEMENT))
    for level in range(2, 300):
        dim = max_of((dim + other) // level, other - level)
    assert expr_from_dim(dim) is None
    polynomial = polynomial_of(settle(ir.SymbolicDim(DIM)))
    assert polynomial is not None
    big = polynomial
    for _ in range(70):
        big = big + big
    assert expr_from_dim(make_dim(big)) is None
