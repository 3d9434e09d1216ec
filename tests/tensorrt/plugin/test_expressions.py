"""Symbolic integers and shapes, against plain Python."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dovetail
import dovetail_tensorrt.trt.plugin as trtp
from dovetail.expr import Symbol, decode_expr, encode_expr, evaluate, interval
from tests.support.symbolic_integers import RANGES, Implementation, Tree, check_bounds, check_values, trees

OPERATIONS: list[tuple[Callable[[Any, Any], Any], Callable[[int, int], int]]] = [
    (operator.add, operator.add),
    (operator.sub, operator.sub),
    (operator.mul, operator.mul),
    (operator.floordiv, operator.floordiv),
    (operator.eq, lambda a, b: int(a == b)),
    (operator.lt, lambda a, b: int(a < b)),
    (trtp.cdiv, lambda a, b: -(-a // b)),
    (trtp.max, max),
    (trtp.min, min),
]


@given(st.sampled_from(OPERATIONS), st.integers(1, 1000), st.integers(1, 1000))
def test_operations_are_those_of_integers(pair: Any, a: int, b: int) -> None:
    symbolic, plain = pair
    one, other = trtp.ShapeExpr(Symbol("a")), trtp.ShapeExpr(Symbol("b"))
    values = {"a": a, "b": b}
    expected = plain(a, b)
    assert evaluate(symbolic(one, other).expr, values) == expected
    assert evaluate(symbolic(one, b).expr, values) == expected
    assert evaluate(symbolic(a, other).expr, values) == expected
    assert symbolic(trtp.ShapeExpr(a), b).constant_value() == expected


FORMULAS = Implementation(
    symbols={name: trtp.ShapeExpr(Symbol(name)) for name in RANGES},
    operations={
        "sum": operator.add,
        "sub": operator.sub,
        "prod": operator.mul,
        "floor_div": operator.floordiv,
        "ceil_div": trtp.cdiv,
        "max": trtp.max,
        "min": trtp.min,
        "equal": operator.eq,
        "less": operator.lt,
    },
    constant=trtp.ShapeExpr,
    evaluate=lambda shape, values: evaluate(decode_expr(encode_expr(shape.expr)), values),
    bounds=lambda shape: interval(shape.expr, RANGES),
)


@given(trees(tuple(FORMULAS.operations)))
@settings(max_examples=200, deadline=None)
def test_formulas_with_zeros_and_negative_numbers(tree: Tree) -> None:
    shape = check_values(tree, FORMULAS)
    if shape is not None:
        check_bounds(tree, shape, FORMULAS)


def test_a_sum_of_many_dimensions_is_read_again() -> None:
    total: Any = trtp.ShapeExpr(0)
    for index in range(600):
        total = total + trtp.ShapeExpr(Symbol(f"s{index}"))
    assert evaluate(decode_expr(encode_expr(total.expr)), {f"s{index}": 2 for index in range(600)}) == 1200


def test_kinds_of_results() -> None:
    shape, number = trtp.ShapeExpr(3), trtp.SymInt32(4)
    assert type(shape + 1) is trtp.ShapeExpr
    assert type(shape + number) is trtp.SymInt32
    assert type(trtp.SymInt8(1) * trtp.SymInt16(1)) is trtp.SymInt16
    assert (shape == 3).constant_value() == 1
    assert bool(shape == 3)


def test_fake_expressions_stay_fake() -> None:
    fake = trtp.ShapeExpr()
    assert fake.is_fake
    assert (fake + 2).is_fake
    assert trtp.cdiv(fake, 2).is_fake
    assert not fake.is_constant
    with pytest.raises(ValueError, match="no value"):
        bool(fake < 3)


def test_what_is_no_integer_is_refused() -> None:
    with pytest.raises(ValueError, match="use // to divide"):
        trtp.ShapeExpr(1) + 0.5
    with pytest.raises(ValueError, match="needs a symbolic integer"):
        trtp.cdiv(4, 2)


def test_size_tensors_take_part_in_nothing() -> None:
    size = trtp.size_tensor(opt=trtp.ShapeExpr(2), upper_bound=trtp.ShapeExpr(4))
    expr = size.expr()
    assert expr.is_size_tensor
    assert size.is_size_tensor
    assert size.dtype is dovetail.int32
    for act in (lambda: expr + 1, lambda: 2 * expr, lambda: trtp.max(expr, 1), lambda: expr == 1):
        with pytest.raises(ValueError, match="takes part in no operation"):
            act()
    size.dtype = dovetail.int64
    assert size.dtype is dovetail.int64


def test_rows_of_expressions() -> None:
    shape = trtp.ShapeExprs.from_tuple((2, trtp.ShapeExpr(3)))
    assert [each.constant_value() for each in shape] == [2, 3]
    assert shape.numel().constant_value() == 6
    assert trtp.ShapeExprs(2)[0].is_fake
    with pytest.raises(ValueError, match="at most 8"):
        trtp.ShapeExprs.from_tuple((1,) * 9)
    row = trtp.SymIntExprs(2)
    row[0] = 5
    assert type(row[0]) is trtp.SymInt32


def test_launch_parameters_are_32_bits_and_named() -> None:
    params = trtp.KernelLaunchParams(block_x=128)
    params.grid_x = trtp.cdiv(trtp.ShapeExpr(100), 64)
    assert params.grid_x.constant_value() == 2
    assert params.shared_mem.constant_value() == 0
    with pytest.raises(AttributeError, match="has no 'grid_w'"):
        params.grid_w = 1
    with pytest.raises(AttributeError, match="has no 'grid_w'"):
        _ = params.grid_w


def test_descriptors_of_inputs_cannot_be_changed() -> None:
    desc = trtp.TensorDesc(trtp.ShapeExprs.from_tuple((2, 3)), dovetail.float32).freeze()
    for name, value in (("dtype", dovetail.float16), ("shape_expr", (1,)), ("format", None)):
        with pytest.raises(ValueError, match="take like"):
            setattr(desc, name, value)
    with pytest.raises(ValueError, match="shape of an input"):
        desc.shape_expr[0] = 5
    twin = desc.like()
    twin.shape_expr[0] += 1
    twin.dtype = dovetail.float16
    twin.shape_expr = (twin.shape_expr[0], 5)
    assert desc.dtype is dovetail.float32
    assert desc.shape_expr[1].constant_value() == 3
    with pytest.raises(ValueError, match="has_shape"):
        _ = desc.shape
    alias = desc.aliased()
    assert alias.is_aliased
    assert alias.get_aliased() is desc
    with pytest.raises(ValueError, match="take like"):
        alias.dtype = dovetail.float16


def test_shapes_know_their_bounds() -> None:
    still = trtp.Shape((2, 3))
    assert tuple(still) == (2, 3)
    assert still.numel() == 6
    assert not still.is_dynamic
    with pytest.raises(ValueError, match="is_dynamic"):
        _ = still.max
