"""Rule 1.6: the expression builder, its nine operations, and the dims they stand for at run time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dovetail as trt
from dovetail.plugin import as_array
from tests.conformance.contract.authors import Plus, PlusCreator, build, load, one_plugin

Op = trt.DimensionOperation
OPERATIONS = {
    Op.SUM: lambda a, b: a + b,
    Op.PROD: lambda a, b: a * b,
    Op.MAX: max,
    Op.MIN: min,
    Op.SUB: lambda a, b: a - b,
    Op.EQUAL: lambda a, b: int(a == b),
    Op.LESS: lambda a, b: int(a < b),
    Op.FLOOR_DIV: lambda a, b: a // b,
    Op.CEIL_DIV: lambda a, b: -(-a // b),
}


def test_the_nine_operations_have_the_contracts_numbers() -> None:
    assert {op.name: op.value for op in Op} == {
        "SUM": 0,
        "PROD": 1,
        "MAX": 2,
        "MIN": 3,
        "SUB": 4,
        "EQUAL": 5,
        "LESS": 6,
        "FLOOR_DIV": 7,
        "CEIL_DIV": 8,
    }


class Shaped(Plus):
    """An output of one dimension, computed by ``rule(n, m, builder)`` from the two dims of the input."""

    rule: Any = None

    def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
        return [trt.DimsExprs([type(self).rule(inputs[0][0], inputs[0][1], exprBuilder)])]

    def compute(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any) -> None:
        as_array(outputs[0], output_desc[0])[...] = 0


def _engine(rule: Any, shape: tuple[int, int] = (-1, -1)) -> Any:
    cls = type("Shaped", (Shaped,), {"rule": staticmethod(rule)})
    bounds = [
        tuple(n if n >= 0 else given for n, given in zip(shape, b, strict=True)) for b in ((1, 1), (4, 3), (20, 20))
    ]
    profiles = [{"x": bounds}] if -1 in shape else []
    return load(build(one_plugin(cls(), shape), profiles=profiles), PlusCreator(cls))


@pytest.mark.parametrize("operation", list(Op), ids=lambda op: op.name)
def test_each_operation_over_dims_of_a_run(operation: Any) -> None:
    engine = _engine(lambda n, m, b: b.operation(operation, n, m))
    for n, m in ((7, 3), (3, 3), (20, 1), (9, 4)):
        assert engine(np.zeros((n, m), np.float32)).shape == (OPERATIONS[operation](n, m),)


@pytest.mark.parametrize("operation", list(Op), ids=lambda op: op.name)
def test_operations_over_constants_are_constants(operation: Any) -> None:
    seen: list[Any] = []

    def rule(n: Any, m: Any, b: Any) -> Any:
        result = b.operation(operation, n, m)
        seen.append((result.is_constant(), result.get_constant_value(), result.is_size_tensor()))
        return result

    expected = OPERATIONS[operation](7, 3)
    assert _engine(rule, (7, 3))(np.zeros((7, 3), np.float32)).shape == (expected,)
    assert set(seen) == {(True, expected, False)}


def test_dims_that_are_not_known_say_so() -> None:
    seen: list[Any] = []

    def rule(n: Any, m: Any, b: Any) -> Any:
        seen.append((n.is_constant(), n.get_constant_value(), n.is_size_tensor(), m.is_constant()))
        return n

    _engine(rule, (-1, 3))
    assert set(seen) == {(False, -(2**63), False, True)}


def test_an_operation_that_does_not_exist_is_none() -> None:
    seen: list[Any] = []

    def rule(n: Any, m: Any, b: Any) -> Any:
        seen.append(b.operation(99, n, m))
        return n

    _engine(rule, (4, 3))
    assert set(seen) == {None}


@pytest.mark.parametrize("value", [5, np.int64(5), np.int32(5), True])
def test_constants_from_any_integer(value: Any) -> None:
    engine = _engine(lambda n, m, b: b.constant(value), (4, 3))
    assert engine(np.zeros((4, 3), np.float32)).shape == (int(value),)


def test_builders_and_expressions_are_not_made_by_hand() -> None:
    with pytest.raises(trt.PluginError, match=r"exprBuilder\.constant"):
        _engine(lambda n, m, b: 3, (4, 3))
    with pytest.raises(trt.PluginError, match="constant"):
        _engine(lambda n, m, b: b.operation(Op.SUM, n, 3), (4, 3))


_TREES = st.recursive(
    st.sampled_from(["n", "m"]) | st.integers(1, 9),
    lambda inner: st.tuples(
        st.sampled_from([Op.SUM, Op.PROD, Op.MAX, Op.MIN, Op.FLOOR_DIV, Op.CEIL_DIV]), inner, inner
    ),
    max_leaves=6,
)


def _build_tree(tree: Any, n: Any, m: Any, b: Any) -> Any:
    if isinstance(tree, tuple):
        return b.operation(tree[0], _build_tree(tree[1], n, m, b), _build_tree(tree[2], n, m, b))
    return {"n": n, "m": m}.get(tree) or b.constant(tree)


def _evaluate_tree(tree: Any, n: int, m: int) -> int:
    if isinstance(tree, tuple):
        first, second = _evaluate_tree(tree[1], n, m), _evaluate_tree(tree[2], n, m)
        if tree[0] in (Op.FLOOR_DIV, Op.CEIL_DIV) and second == 0:
            raise ZeroDivisionError
        return int(OPERATIONS[tree[0]](first, second))
    return {"n": n, "m": m}.get(tree, tree)


@settings(max_examples=15)
@given(tree=_TREES, n=st.integers(1, 6), m=st.integers(1, 6))
def test_nested_expressions(tree: Any, n: int, m: int) -> None:
    try:
        values = [_evaluate_tree(tree, *point) for point in ((1, 1), (4, 3), (20, 20), (n, m))]
    except ZeroDivisionError:
        return
    if max(values) > 100_000:
        return
    engine = _engine(lambda a, b, builder: _build_tree(tree, a, b, builder))
    assert engine(np.zeros((n, m), np.float32)).shape == (values[-1],)


def test_constant_shape_inputs_are_constants_whenever_they_are_asked() -> None:
    class Asking(Shaped):
        def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
            assert all(value.is_constant() for value in shape_inputs[0])
            return [trt.DimsExprs([exprBuilder.constant(shape_inputs[0][0].get_constant_value() + 1)])]

    def fill(network: Any) -> Any:
        x = network.add_input("x", trt.float32, (2, 3))
        number = network.add_constant((1,), np.array([4], np.int32)).get_output(0)
        return network.add_plugin_v3([x], [number], Asking()).get_output(0)

    assert load(build(fill), PlusCreator(Asking))(np.zeros((2, 3), np.float32)).shape == (5,)


def test_eight_dims_and_not_nine() -> None:
    class Eight(Plus):
        count = 8

        def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
            return [trt.DimsExprs([exprBuilder.constant(1) for _ in range(self.count)])]

        def compute(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any) -> None:
            as_array(outputs[0], output_desc[0])[...] = 1

    class Nine(Eight):
        count = 9

    assert load(build(one_plugin(Eight())), PlusCreator(Eight))(np.zeros((2, 3), np.float32)).shape == (1,) * 8
    with pytest.raises(trt.PluginError, match="get_output_shapes"):
        build(one_plugin(Nine()))


def test_shapes_decided_through_two_plugins() -> None:
    class Doubling(Plus):
        def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
            rows = exprBuilder.operation(Op.PROD, inputs[0][0], exprBuilder.constant(2))
            return [trt.DimsExprs([rows, inputs[0][1]])]

        def compute(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any) -> None:
            x = as_array(inputs[0], input_desc[0])
            as_array(outputs[0], output_desc[0])[...] = np.concatenate([x, x])

    def fill(network: Any) -> Any:
        x = network.add_input("x", trt.float32, (-1, 3))
        y = network.add_plugin_v3([x], [], Doubling()).get_output(0)
        z = network.add_plugin_v3([y], [], Doubling()).get_output(0)
        assert z.shape == (-1, 3)
        return z

    engine = load(build(fill, profiles=[{"x": ((1, 3), (2, 3), (4, 3))}]), PlusCreator(Doubling))
    assert engine(np.zeros((3, 3), np.float32)).shape == (12, 3)
