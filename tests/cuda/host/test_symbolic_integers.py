"""Sizes and indices of kernels against Python's integers: zeros, negative numbers, and every sign of a divisor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator

import dovetail
from dovetail.errors import ProviderError, UsageError
from dovetail.expr import decode_expr, encode_expr, evaluate
from dovetail.network.inference.dim_exprs import expr_from_dim, settle
from dovetail_cuda.graph.symbols import find_sizes
from dovetail_cuda.lower.index import Gathered, Index, Quotient, Remainder, Var
from dovetail_cuda.lower.sizes import expr_from_size, greatest, is_below, least, make_symbol, may_exceed, size_from_text
from tests.support.formula_plugin import FORMULAS, PROFILE, build_formula, check_formula
from tests.support.symbolic_integers import (
    DIM,
    ELEMENT,
    OPERATIONS,
    RANGES,
    Implementation,
    Tree,
    apply_tree,
    check_bounds,
    check_values,
    list_values,
    trees,
)

NAMES = ("sum", "sub", "prod", "floor_div", "ceil_div", "mod")
SYMBOLS = {name: make_symbol(name, low, low + 2, high) for name, (low, high) in RANGES.items()}


def _value(size: int, values: Mapping[str, int]) -> int:
    return evaluate(decode_expr(encode_expr(expr_from_size(size))), values)


SIZES = Implementation(
    symbols=SYMBOLS,
    operations={name: OPERATIONS[name] for name in NAMES},
    constant=int,
    evaluate=_value,
    bounds=lambda size: (least(size), greatest(size)),
    raises_every_division=False,
)


@given(trees(NAMES))
@settings(max_examples=400, deadline=None)
def test_sizes(tree: Tree) -> None:
    size = check_values(tree, SIZES)
    if size is None:
        return
    check_bounds(tree, size, SIZES)
    values = [value for _, value in list_values(tree) if value is not None]
    assert not is_below(size, 2) or all(value < 2 for value in values)
    assert may_exceed(size, 3) or all(value <= 3 for value in values)


@given(trees(NAMES))
@settings(max_examples=150, deadline=None)
def test_sizes_in_the_text_of_a_kernel(tree: Tree) -> None:
    size = check_values(tree, SIZES)
    if size is None or isinstance(size, int):
        return
    again = size_from_text(str(size)[1:-1])
    for point, value in list_values(tree):
        assert value is None or _value(again, point) == value, point


@given(trees(NAMES, max_leaves=6))
@settings(max_examples=150, deadline=None)
def test_sizes_of_inputs_whose_shape_is_a_formula(tree: Tree) -> None:
    """The text that shape inference writes is read as the same size, or not at all."""
    symbols = {name: settle(ir.SymbolicDim(name)) for name in RANGES}
    try:
        dim = apply_tree(tree, lambda leaf: symbols.get(leaf, leaf), SIZES.operations)
    except (ZeroDivisionError, TypeError):
        return
    expr = expr_from_dim(dim)
    if expr is None:
        return
    value = ir.Value(name="x", shape=ir.Shape([dim]), type=ir.TensorType(ir.DataType.FLOAT))
    try:
        (size,) = find_sizes(value, SYMBOLS)
    except ProviderError:
        return  # such as a name of a rounded part, which is a symbol of its own
    for point, expected in list_values(tree):
        assert expected is None or _value(size, point) == expected, point


@pytest.mark.parametrize("name", [DIM, ELEMENT])
def test_a_size_divided_by_a_size_that_can_be_zero_raises_there(name: str) -> None:
    size, zero = SYMBOLS[name], {DIM: 0, ELEMENT: 0}
    for quotient in (size % size, size // size, size * 3 // size, 0 // size):
        with pytest.raises(UsageError, match="divides by zero"):
            _value(quotient, zero)
    positive = make_symbol("p", 1, 2, 5)
    assert (positive % positive, positive * 3 // positive, 0 // positive) == (0, 3, 0)


def test_bounds_of_a_negative_divisor() -> None:
    size = make_symbol("s", 1, 4, 9) // -3
    assert (least(size), greatest(size)) == (-3, -1)
    assert is_below(size, 0)
    with pytest.raises(ProviderError, match="some shapes of the profile only"):
        assert make_symbol("s", 0, 4, 9) // -3 < 0


def test_a_sum_of_many_dimensions_can_be_stored() -> None:
    symbols = [make_symbol(f"s{index}", 1, 2, 9) for index in range(400)]
    total = reduce(lambda one, other: one + other, symbols)
    assert _value(total, {f"s{index}": 2 for index in range(400)}) == 800
    text = " + ".join(f"s{index}" for index in range(400))
    value = ir.Value(name="x", shape=ir.Shape([ir.SymbolicDim(text)]), type=ir.TensorType(ir.DataType.FLOAT))
    assert find_sizes(value, {f"s{index}": symbol for index, symbol in enumerate(symbols)}) == (total,)


def test_a_dimension_named_like_a_constant_of_python() -> None:
    value = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT))
    value.shape = ir.Shape([settle(ir.SymbolicDim("True")) * 2])
    with pytest.raises(ProviderError, match="is not known"):
        find_sizes(value, {"True": make_symbol("True", 1, 4, 9)})


# indices


def _evaluate(index: Index, values: Mapping[str, int]) -> int:
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
                raise AssertionError("no element is loaded here")
    return total


_FACTORS = st.integers(-12, 12)
STEPS = st.lists(st.tuples(st.sampled_from(("add", "multiply", "divide", "mod", "join")), _FACTORS), max_size=8)


@given(STEPS, st.integers(1, 9), st.integers(1, 6))
@settings(max_examples=600, deadline=None)
def test_indices(steps: list[tuple[str, int]], i_size: int, j_size: int) -> None:
    index = Index.variable("i", i_size)
    points = [{"i": i, "j": j} for i in range(i_size) for j in range(j_size)]
    expected = [point["i"] for point in points]
    for kind, number in steps:
        if kind in ("divide", "mod") and number == 0:
            with pytest.raises(ProviderError, match="divided by zero"):
                _ = index // 0 if kind == "divide" else index % 0
            continue
        match kind:
            case "add":
                index, expected = index + number, [value + number for value in expected]
            case "multiply":
                index, expected = index * number, [value * number for value in expected]
            case "divide":
                index, expected = index // number, [value // number for value in expected]
            case "mod":
                index, expected = index % number, [value % number for value in expected]
            case "join":
                index = index + Index.variable("j", j_size) * number
                expected = [value + point["j"] * number for value, point in zip(expected, points, strict=True)]
        low, high = index.bounds
        assert all(low <= value <= high for value in expected)
        assert [_evaluate(index, point) for point in points] == expected


@given(STEPS, st.integers(1, 9), st.integers(1, 6))
@settings(max_examples=200, deadline=None)
def test_devices_divide_no_negative_number(steps: list[tuple[str, int]], i_size: int, j_size: int) -> None:
    """Division on a device rounds towards zero, so a dividend below zero would give another quotient."""
    index = Index.variable("i", i_size)
    for kind, number in steps:
        other = Index.variable("j", j_size) * number if kind == "join" else number
        if kind in ("add", "join"):
            index = index + other
        elif kind == "multiply":
            index = index * number
        elif number:
            index = index // number if kind == "divide" else index % number
    pending = [index]
    while pending:
        for atom, _ in pending.pop().terms:
            if isinstance(atom, Quotient | Remainder):
                assert atom.by > 0
                points = ({"i": i, "j": j} for i in range(i_size) for j in range(j_size))
                assert all(_evaluate(atom.of, point) >= 0 for point in points)
                pending.append(atom.of)


# kernels


@st.composite
def _moved_models(draw: st.DrawFn) -> tuple[str, tuple[int, ...]]:
    """Models that transpose, flatten and reverse: the position of an element is a quotient of a difference."""
    shape = tuple(draw(st.lists(st.integers(2, 5), min_size=2, max_size=3)))
    order = draw(st.permutations(range(len(shape))))
    step = draw(st.sampled_from((-1, -2, -3)))
    count = int(np.prod(shape))
    nodes = f"""f = Constant<value=int64[1]{{{count}}}>() m1 = Constant<value=int64[1]{{-1}}>()
        far = Constant<value=int64[1]{{-10000}}>() zero = Constant<value=int64[1]{{0}}>()
        step = Constant<value=int64[1]{{{step}}}>() e = Exp(x) t = Transpose<perm={list(order)}>(e)
        r = Reshape(t, f) s = Slice(r, m1, far, zero, step) y = Neg(s)"""
    dims = ",".join(map(str, shape))
    return f'<ir_version: 10, opset_import: ["" : 21]> g (float[{dims}] x) => (float[k] y) {{ {nodes} }}', shape


def test_reversed_elements_of_a_transposed_tensor(paper: Any) -> None:
    @settings(max_examples=20, deadline=None)
    @given(_moved_models())
    def check(drawn: tuple[str, tuple[int, ...]]) -> None:
        text, shape = drawn
        model = onnx.parser.parse_model(text)
        config = dovetail.BuilderConfig()
        config.providers = ["cuda", "cpu"]
        engine = dovetail.compile(model, config=config)
        assert [step.provider for step in engine.manifest.programs[0].steps] == ["cuda"]
        x = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
        expected = np.asarray(dovetail.compile(model, providers=["cpu"])(x))
        np.testing.assert_allclose(np.asarray(engine(x)), expected, rtol=1e-6)

    check()


@pytest.mark.parametrize("formula", FORMULAS.values(), ids=FORMULAS.keys())
@pytest.mark.parametrize("profile", [PROFILE, None], ids=["profile", "open"])
def test_kernels_around_a_plugin_run_over_its_whole_profile(
    paper: Any, formula: Callable[[Any], Any], profile: Any
) -> None:
    engine = build_formula(formula, profile, ("cuda", "cpu"))
    assert any(step.provider == "cuda" for step in engine.manifest.programs[0].steps)
    check_formula(engine, formula)


DECREASING = """s = Shape(x) n = Gather<axis=0>(s, zero) k = Sub(ten, n) m = Neg(n) """
DECREASING_MODELS = {
    "cut": "p = Slice(x, zero, k, zero) y = Exp(p)",
    "cut from the end": "p = Slice(x, m, k, zero) y = Exp(p)",
    "filled": "z = ConstantOfShape(k) u = Unsqueeze(z, one) y = Add(u, w)",
    "expanded": "q = Concat<axis=0>(k, four) e = Expand(w, q) t = Exp(e) y = Concat<axis=0>(t, x)",
    "tiled": "q = Concat<axis=0>(k, one) r = Slice(x, zero, one, zero) t = Tile(r, q) y = Neg(t)",
    "padded": "q = Concat<axis=0>(k, zero, zero, zero) t = Pad(x, q) y = Exp(t)",
}


@pytest.mark.parametrize("text", DECREASING_MODELS.values(), ids=DECREASING_MODELS.keys())
@pytest.mark.parametrize("low", [0, 1])
def test_a_dimension_that_decreases(paper: Any, text: str, low: int) -> None:
    header = '<ir_version: 10, opset_import: ["" : 21]> g (float[n,4] x, float[1,4] w) => (float y) '
    weights = "<int64[1] zero = {0}, int64[1] one = {1}, int64[1] four = {4}, int64[1] ten = {10}>"
    model = onnx.parser.parse_model(f"{header} {weights} {{ {DECREASING} {text} }}")
    config = dovetail.BuilderConfig()
    config.providers = ["cuda", "cpu"]
    engine = dovetail.compile(model, config=config, shapes={"x": ((low, 4), (5, 4), (9, 4))})
    reference = ReferenceEvaluator(model)
    for n in (low, 5, 9):
        rng = np.random.default_rng(n)
        inputs = {"x": rng.standard_normal((n, 4)).astype(np.float32), "w": np.ones((1, 4), np.float32)}
        if n == 0 and "Tile" in text:
            continue  # no row to repeat
        (expected,) = reference.run(None, inputs)
        np.testing.assert_allclose(np.asarray(engine(**inputs)), expected, rtol=1e-5)
