"""Dimensions that count with polynomials: as onnx-ir's own do, and between the forms of an expression."""

from __future__ import annotations

import math
import time

import numpy as np
import onnx_ir as ir
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto as T
from onnx import helper, numpy_helper

from dovetail.expr import Constant, DimensionOperation, Expr, Operation, Symbol, evaluate, symbols_of
from dovetail.network.importer.importer import import_model
from dovetail.network.inference.dim_exprs import (
    PolynomialDim,
    describe_shape,
    dim_from_expr,
    divide_size,
    expr_from_dim,
    max_of,
    min_of,
    settle,
    symbols_in,
)


def make(name: str) -> PolynomialDim:
    dim = settle(ir.SymbolicDim(name))
    assert isinstance(dim, PolynomialDim)
    return dim


def value_at(dim: int | ir.SymbolicDim, **sizes: int) -> int:
    expr = expr_from_dim(dim)
    assert expr is not None
    return evaluate(expr, {name: sizes[name] for name in symbols_of(expr)})


@pytest.mark.parametrize("size", [1, 6, 7])
def test_arithmetic_is_that_of_integers(size: int) -> None:
    n, m = make("n"), make("m")
    pairs = [
        (n + 3, size + 3),
        (3 + n, size + 3),
        (n - 4, size - 4),
        (4 - n, 4 - size),
        (n * m, size * 5),
        (2 * n, 2 * size),
        (n // 2, size // 2),
        (n // m, size // 5),
        (n % 4, size % 4),
        (math.ceil(n / 2), -(-size // 2)),
        (math.floor(n / 2), size // 2),
        (-n, -size),
        (max_of(n, m, 6), max(size, 5, 6)),
        (min_of(n, m), min(size, 5)),
    ]
    assert [value_at(dim, n=size, m=5) for dim, _ in pairs] == [number for _, number in pairs]


def test_what_is_a_number_is_an_integer() -> None:
    n = make("n")
    assert n - n == 0
    assert divide_size(2 * n, n) == 2
    assert isinstance(n - n, int)


def test_unknown_dims_stay_unknown() -> None:
    n, unknown = make("n"), ir.SymbolicDim(None)
    assert (n + unknown).value is None
    assert settle(unknown) is unknown
    assert expr_from_dim(unknown) is None
    assert symbols_in(unknown) == frozenset()


def test_what_is_no_polynomial_stays_as_it_is() -> None:
    root = ir.SymbolicDim(sympy.sqrt(sympy.Symbol("n", integer=True, positive=True)))
    assert settle(root) is root
    assert expr_from_dim(root) is None
    assert symbols_in(root) == {"n"}
    assert symbols_in(make("n") + root) == {"n"}
    assert max_of(root, 0) == root


TEXTS = [
    "floor(n/2) + 1",
    "floor((n - 3)/2) + m",
    "max(n, m) * 2",
    "min(n, 5) - 1",
    "n*m/m",
    "(n % 4) + 1",
    "-floor(-n/3)",
    "n**2",
    "n/2",
    "n*m/3",
]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("n", [1, 4, 11])
def test_dims_that_the_library_makes(text: str, n: int) -> None:
    dim = ir.SymbolicDim(text)
    symbols = {str(symbol): symbol for symbol in dim._expr.free_symbols}
    exact = dim._expr.subs({symbol: {"n": n, "m": 7}[name] for name, symbol in symbols.items()})
    assert value_at(settle(dim), n=n, m=7) == math.floor(exact)
    assert value_at(ir.SymbolicDim(dim._expr), n=n, m=7) == math.floor(exact)


def test_a_name_that_was_written_is_read_again() -> None:
    dim = make("n") // 2 + 1
    read = settle(ir.SymbolicDim(dim.value))
    assert read == dim
    assert symbols_in(read) == {"n"}
    assert settle(ir.SymbolicDim(dim._expr)) == dim


def test_sympy_is_told_no_more_than_is_certain() -> None:
    zero_or_more, one_or_more = (make("n") // 2)._expr, ((make("n") + 2) // 2)._expr
    assert (zero_or_more.is_nonnegative, zero_or_more.is_positive) == (True, None)
    assert one_or_more.is_positive
    assert make("value_sizes_0")._expr.is_nonnegative is None
    assert min_of(make("n") - 5, 0)._expr.is_nonnegative is None


def exprs() -> st.SearchStrategy[Expr]:
    leaves = st.one_of(st.integers(-4, 6).map(Constant), st.sampled_from(["n", "m"]).map(Symbol))
    kinds = [one for one in DimensionOperation if one not in (DimensionOperation.EQUAL, DimensionOperation.LESS)]
    divisions = (DimensionOperation.FLOOR_DIV, DimensionOperation.CEIL_DIV)

    def join(parts: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        others = st.sampled_from([one for one in kinds if one not in divisions])
        return st.one_of(
            st.builds(Operation, others, parts, parts),
            st.builds(Operation, st.sampled_from(divisions), parts, st.integers(1, 5).map(Constant)),
        )

    return st.recursive(leaves, join, max_leaves=8)


@given(exprs(), st.integers(1, 30), st.integers(1, 30))
@settings(max_examples=200, deadline=None)
def test_expressions_of_plugins(expr: Expr, n: int, m: int) -> None:
    dim = dim_from_expr(expr, {})
    assert dim is not None
    assert value_at(dim, n=n, m=m) == evaluate(expr, {"n": n, "m": m})


def test_a_plugin_that_repeats_a_dim_gets_the_same_dim() -> None:
    dim = make("n") // 3 + 2
    expr = expr_from_dim(dim)
    assert expr is not None
    assert dim_from_expr(expr, {expr: dim}) == dim
    assert dim_from_expr(expr, {}) == dim
    assert dim_from_expr(Operation(DimensionOperation.LESS, expr, Constant(2)), {}) is None


def test_shapes_in_messages_are_formulas() -> None:
    assert describe_shape(ir.Shape([make("n"), 3, make("h") // 2 - 1])) == "[n,3,floor((h)/(2)) - 1]"
    assert describe_shape(None) == ""


def test_sizes_of_a_deep_network_are_found_at_once() -> None:
    """Forty levels of pools that round up and of sums that take the larger of two sizes."""
    nodes, last = [], "x"
    for level in range(40):
        pads = [1, 1, 1, 1] if level % 2 else [0, 0, 0, 0]
        nodes += [
            helper.make_node(
                "MaxPool", [last], [f"p{level}"], kernel_shape=[3, 3], strides=[1, 1], pads=pads, ceil_mode=1
            ),
            helper.make_node("MaxPool", ["z"], [f"q{level}"], kernel_shape=[2, 2], strides=[1 + level % 3] * 2),
            helper.make_node("Add", [f"p{level}", f"q{level}"], [f"a{level}"]),
        ]
        last = f"a{level}"
    inputs = [helper.make_tensor_value_info(name, T.FLOAT, ["n", 3, f"h{name}", f"w{name}"]) for name in ("x", "z")]
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_tensor_value_info(last, T.FLOAT, None)])
    start = time.process_time()
    model = import_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10))
    assert time.process_time() - start < 5
    shape = model.graph.outputs[0].shape
    assert shape is not None
    assert all(len(str(dim)) < 40 for dim in shape)


@pytest.mark.parametrize("size", [7, 8, 21, 64])
def test_a_pool_that_rounds_up(size: int) -> None:
    """With open dims the same as with the size itself, which the library works out window by window."""
    for kernel, stride, before, after in [(3, 2, 0, 0), (3, 2, 1, 1), (2, 3, 1, 0), (3, 3, 0, 2), (2, 2, 0, 1)]:
        attributes = {"kernel_shape": [kernel], "strides": [stride], "pads": [before, after], "ceil_mode": 1}
        found = []
        for length in (size, "n"):
            graph = helper.make_graph(
                [helper.make_node("MaxPool", ["x"], ["y"], **attributes)],
                "g",
                [helper.make_tensor_value_info("x", T.FLOAT, [1, 1, length])],
                [helper.make_tensor_value_info("y", T.FLOAT, None)],
            )
            model = import_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10))
            shape = model.graph.outputs[0].shape
            assert shape is not None
            found.append(value_at(shape[2], n=size))
        assert found[0] == found[1], attributes


def test_a_range_up_to_a_size_that_may_be_nothing() -> None:
    """A limit below 0 gives no element."""
    vectors = {"from": 1, "end": 2**31, "axis": 0, "two": 2, "one": 1}
    scalars = {"start": 0, "step": 1}
    graph = helper.make_graph(
        [
            helper.make_node("Slice", ["x", "from", "end", "axis", "two"], ["half"]),
            helper.make_node("Shape", ["half"], ["s"]),
            helper.make_node("Sub", ["s", "one"], ["less"]),
            helper.make_node("Squeeze", ["less"], ["limit"]),
            helper.make_node("Range", ["start", "limit", "step"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", T.FLOAT, ["n"])],
        [helper.make_tensor_value_info("y", T.INT64, None)],
        [
            *(numpy_helper.from_array(np.array([number]), name) for name, number in vectors.items()),
            *(numpy_helper.from_array(np.array(number), name) for name, number in scalars.items()),
        ],
    )
    model = import_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10))
    shape = model.graph.outputs[0].shape
    assert shape is not None
    assert [value_at(shape[0], n=n) for n in (1, 2, 7)] == [0, 0, 2]
