"""Loops and conditionals: counts and conditions, recurrences, iterators, outputs, and nests of both."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dovetail.errors import DovetailError, InputError, ModelError, UsageError
from dovetail.network.api.definition import Network
from dovetail.network.api.emission import Emitter
from dovetail.network.api.enums import ElementWiseOperation, LoopOutput, ReduceOperation, TripLimit, UnaryOperation
from dovetail.network.api.tensor import ITensor
from dovetail.types import DataType
from tests.support.layer_cases import rand
from tests.support.run_network import run_network

SUM, PROD, SUB, LESS = (
    ElementWiseOperation.SUM,
    ElementWiseOperation.PROD,
    ElementWiseOperation.SUB,
    ElementWiseOperation.LESS,
)


class Net:
    """A network with short words for what the tests say often."""

    def __init__(self) -> None:
        self.network = Network()
        self.feeds: dict[str, np.ndarray] = {}

    def input(self, array: Any, dtype: DataType = DataType.FLOAT, shape: Any = None) -> ITensor:
        array = np.asarray(array, dtype.numpy)
        name = f"x{len(self.feeds)}"
        self.feeds[name] = array
        return self.network.add_input(name, dtype, array.shape if shape is None else shape)

    def constant(self, value: Any, dtype: Any = np.float32) -> ITensor:
        array = np.asarray(value, dtype)
        return self.network.add_constant(array.shape, array).get_output(0)

    def op(self, a: ITensor, kind: ElementWiseOperation, b: ITensor) -> ITensor:
        return self.network.add_elementwise(a, b, kind).get_output(0)

    def run(self, *outputs: ITensor) -> list[np.ndarray]:
        for tensor in outputs:
            self.network.mark_output(tensor)
        results = run_network(self.network, self.feeds)
        return [results[tensor.name] for tensor in outputs]


@pytest.mark.parametrize("count", [0, 1, 5])
def test_count_and_last_value(count: int) -> None:
    net = Net()
    x = net.input([1.0, -2.0])
    loop = net.network.add_loop()
    loop.add_trip_limit(net.input(count, DataType.INT32), TripLimit.COUNT)
    total = loop.add_recurrence(x)
    total.set_input(1, net.op(total.get_output(0), PROD, net.constant([2.0, 3.0])))
    output = loop.add_loop_output(total.get_output(0), LoopOutput.LAST_VALUE).get_output(0)
    (result,) = net.run(output)
    np.testing.assert_allclose(result, np.array([1.0, -2.0]) * np.array([2.0, 3.0]) ** count)


@pytest.mark.parametrize("limit", [0.5, 30.0, 1000.0])
def test_while_is_looked_at_before_each_iteration(limit: float) -> None:
    net = Net()
    loop = net.network.add_loop()
    value = loop.add_recurrence(net.input(1.0))
    loop.add_trip_limit(net.op(value.get_output(0), LESS, net.input(limit)), TripLimit.WHILE)
    value.set_input(1, net.op(value.get_output(0), PROD, net.constant(3.0)))
    last = loop.add_loop_output(value.get_output(0), LoopOutput.LAST_VALUE).get_output(0)
    path = loop.add_loop_output(value.get_output(0), LoopOutput.CONCATENATE).get_output(0)
    wanted, steps = 1.0, []
    while wanted < limit:
        steps.append(wanted)
        wanted *= 3
    result, seen = net.run(last, path)
    assert result == wanted
    np.testing.assert_allclose(seen, np.array(steps, np.float32))


@pytest.mark.parametrize(("count", "limit"), [(3, 1000.0), (10, 30.0), (0, 5.0)])
def test_count_and_while_together(count: int, limit: float) -> None:
    net = Net()
    loop = net.network.add_loop()
    loop.add_trip_limit(net.input(count, DataType.INT64), TripLimit.COUNT)
    value = loop.add_recurrence(net.input(1.0))
    loop.add_trip_limit(net.op(value.get_output(0), LESS, net.input(limit)), TripLimit.WHILE)
    value.set_input(1, net.op(value.get_output(0), PROD, net.constant(3.0)))
    last = loop.add_loop_output(value.get_output(0), LoopOutput.LAST_VALUE).get_output(0)
    wanted, done = 1.0, 0
    while wanted < limit and done < count:
        wanted, done = wanted * 3, done + 1
    assert net.run(last)[0] == wanted


def test_while_over_an_iterator() -> None:
    """The condition of an iteration that never happens must not read past the end."""
    net = Net()
    x = net.input([1.0, 2.0, -1.0, 4.0])
    loop = net.network.add_loop()
    loop.add_trip_limit(net.constant(4, np.int32), TripLimit.COUNT)
    item = loop.add_iterator(x).get_output(0)
    loop.add_trip_limit(net.op(net.constant(0.0), LESS, item), TripLimit.WHILE)
    total = loop.add_recurrence(net.constant(0.0))
    total.set_input(1, net.op(total.get_output(0), SUM, item))
    output = loop.add_loop_output(total.get_output(0), LoopOutput.LAST_VALUE).get_output(0)
    assert net.run(output)[0] == 3.0
    assert run_network(net.network, {"x0": np.ones(4, np.float32)})[output.name] == 4.0


def test_while_over_a_reversed_iterator() -> None:
    net = Net()
    x = net.input([-1.0, 2.0, 3.0, 4.0])
    loop = net.network.add_loop()
    loop.add_trip_limit(net.constant(4, np.int32), TripLimit.COUNT)
    item = loop.add_iterator(x, reverse=True).get_output(0)
    loop.add_trip_limit(net.op(net.constant(0.0), LESS, item), TripLimit.WHILE)
    total = loop.add_recurrence(net.constant(0.0))
    total.set_input(1, net.op(total.get_output(0), SUM, item))
    output = loop.add_loop_output(total.get_output(0), LoopOutput.LAST_VALUE).get_output(0)
    assert net.run(output)[0] == 9.0
    assert run_network(net.network, {"x0": np.ones(4, np.float32)})[output.name] == 4.0


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_iterators(axis: int, reverse: bool) -> None:
    net = Net()
    x = rand(3, 3, 3)
    loop = net.network.add_loop()
    loop.add_trip_limit(net.constant(3, np.int32), TripLimit.COUNT)
    iterator = loop.add_iterator(net.input(x))
    iterator.axis, iterator.reverse = axis, reverse
    assert iterator.get_output(0).shape == (3, 3)
    state = loop.add_recurrence(net.constant(np.zeros((3, 3))))
    state.set_input(1, net.op(net.op(state.get_output(0), PROD, net.constant([[2.0]])), SUM, iterator.get_output(0)))
    output = loop.add_loop_output(state.get_output(0), LoopOutput.LAST_VALUE).get_output(0)
    wanted = np.zeros((3, 3))
    for part in np.moveaxis(x, axis, 0)[:: -1 if reverse else 1]:
        wanted = wanted * 2 + part
    np.testing.assert_allclose(net.run(output)[0], wanted, rtol=1e-5)


def test_a_reversed_iterator_counts_from_the_trip_limit() -> None:
    net = Net()
    loop = net.network.add_loop()
    loop.add_trip_limit(net.constant(2, np.int64), TripLimit.COUNT)
    item = loop.add_iterator(net.input([10.0, 20.0, 30.0, 40.0]), 0, True).get_output(0)
    output = loop.add_loop_output(item, LoopOutput.CONCATENATE).get_output(0)
    np.testing.assert_allclose(net.run(output)[0], [20.0, 10.0])


@pytest.mark.parametrize("kind", [LoopOutput.CONCATENATE, LoopOutput.REVERSE])
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("length", ["none", "count", "same", "longer", "shorter"])
def test_stacked_outputs(kind: LoopOutput, axis: int, length: str) -> None:
    net = Net()
    x = rand(3, 2, 4)
    count = net.constant(3, np.int32)
    loop = net.network.add_loop()
    loop.add_trip_limit(count, TripLimit.COUNT)
    item = loop.add_iterator(net.input(x)).get_output(0)
    layer = loop.add_loop_output(net.op(item, PROD, item), kind)
    layer.axis = axis
    size = {"none": 3, "count": 3, "same": 3, "longer": 5, "shorter": 2}[length]
    if length == "count":
        layer.set_input(1, count)
    elif length != "none":
        layer.set_input(1, net.input(size, DataType.INT32))
    wanted = np.zeros((size, 2, 4), np.float32)
    wanted[: min(size, 3)] = (x**2)[:size]
    wanted = wanted[::-1] if kind == LoopOutput.REVERSE else wanted
    if length in ("none", "count"):
        assert layer.get_output(0).shape == np.moveaxis(wanted, 0, axis).shape
    np.testing.assert_allclose(net.run(layer.get_output(0))[0], np.moveaxis(wanted, 0, axis), rtol=1e-6)


def test_a_condition_that_stops_early_fills_up() -> None:
    net = Net()
    loop = net.network.add_loop()
    value = loop.add_recurrence(net.input(1.0))
    loop.add_trip_limit(net.constant(5, np.int32), TripLimit.COUNT)
    loop.add_trip_limit(net.op(value.get_output(0), LESS, net.constant(5.0)), TripLimit.WHILE)
    value.set_input(1, net.op(value.get_output(0), PROD, net.constant(2.0)))
    outputs = []
    for kind in (LoopOutput.CONCATENATE, LoopOutput.REVERSE):
        layer = loop.add_loop_output(value.get_output(0), kind)
        layer.set_input(1, net.constant(5, np.int32))
        assert layer.get_output(0).shape == (5,)
        outputs.append(layer.get_output(0))
    forward, backward = net.run(*outputs)
    np.testing.assert_allclose(forward, [1, 2, 4, 0, 0])
    np.testing.assert_allclose(backward, [0, 0, 4, 2, 1])


def test_several_recurrences_that_swap() -> None:
    net = Net()
    loop = net.network.add_loop()
    loop.name = "fibonacci"
    loop.add_trip_limit(net.constant(9, np.int32), TripLimit.COUNT)
    a, b = loop.add_recurrence(net.input(0.0)), loop.add_recurrence(net.input(1.0))
    a.set_input(1, b.get_output(0))
    b.set_input(1, net.op(a.get_output(0), SUM, b.get_output(0)))
    outputs = [loop.add_loop_output(r.get_output(0), LoopOutput.LAST_VALUE).get_output(0) for r in (a, b)]
    assert [int(value) for value in net.run(*outputs)] == [34, 55]
    nodes = [node for node in net.network.to_model().graph if node.op_type == "Loop"]
    assert [node.name for node in nodes] == ["fibonacci"]


def test_values_from_outside_stay_outside() -> None:
    net = Net()
    x = net.input([1.0, 2.0])
    loop = net.network.add_loop()
    loop.add_trip_limit(net.constant(2, np.int32), TripLimit.COUNT)
    state = loop.add_recurrence(x)
    doubled = net.op(x, SUM, x)
    state.set_input(1, net.op(state.get_output(0), SUM, doubled))
    last = loop.add_loop_output(state.get_output(0), LoopOutput.LAST_VALUE).get_output(0)
    stacked = loop.add_loop_output(doubled, LoopOutput.CONCATENATE).get_output(0)
    result, rows = net.run(last, stacked)
    np.testing.assert_allclose(result, [5, 10])
    np.testing.assert_allclose(rows, [[2, 4], [2, 4]])
    (node,) = [node for node in net.network.to_model().graph if node.op_type == "Loop"]
    assert sum(inner.op_type == "Add" for inner in node.attributes["body"].as_graph()) == 1


def test_what_comes_after_a_loop_may_be_added_before_its_end() -> None:
    net = Net()
    loop = net.network.add_loop()
    loop.add_trip_limit(net.constant(3, np.int32), TripLimit.COUNT)
    state = loop.add_recurrence(net.input(1.0))
    last = loop.add_loop_output(state.get_output(0), LoopOutput.LAST_VALUE).get_output(0)
    after = net.op(last, SUM, net.constant(0.5))
    assert after.shape == ()
    state.set_input(1, net.op(state.get_output(0), SUM, net.constant(1.0)))
    path = loop.add_loop_output(state.get_output(0), LoopOutput.CONCATENATE).get_output(0)
    result, seen = net.run(after, path)
    assert result == 4.5
    np.testing.assert_allclose(seen, [1, 2, 3])


def test_nested_loops() -> None:
    """The sum over i of i times the sum of row i, with an inner loop whose count is known only outside."""
    net = Net()
    x = rand(3, 4)
    outer, count = net.network.add_loop(), net.input(4, DataType.INT64)
    outer.add_trip_limit(net.constant(3, np.int64), TripLimit.COUNT)
    row = outer.add_iterator(net.input(x)).get_output(0)
    number = outer.add_recurrence(net.constant(0.0))
    number.set_input(1, net.op(number.get_output(0), SUM, net.constant(1.0)))
    total = outer.add_recurrence(net.constant(0.0))
    inner = net.network.add_loop()
    inner.add_trip_limit(count, TripLimit.COUNT)
    item = inner.add_iterator(row).get_output(0)
    part = inner.add_recurrence(net.constant(0.0))
    part.set_input(1, net.op(part.get_output(0), SUM, net.op(item, PROD, number.get_output(0))))
    whole = inner.add_loop_output(part.get_output(0), LoopOutput.LAST_VALUE).get_output(0)
    total.set_input(1, net.op(total.get_output(0), SUM, whole))
    output = outer.add_loop_output(total.get_output(0), LoopOutput.LAST_VALUE).get_output(0)
    wanted = sum(i * x[i].sum() for i in range(3))
    np.testing.assert_allclose(net.run(output)[0], wanted, rtol=1e-4)


def test_nested_while_loops() -> None:
    """Both conditions depend on recurrences; the inner one on that of the outer too."""
    net = Net()
    outer = net.network.add_loop()
    n = outer.add_recurrence(net.input(27.0))
    outer.add_trip_limit(net.op(net.constant(1.0), LESS, n.get_output(0)), TripLimit.WHILE)
    steps = outer.add_recurrence(net.constant(0.0))
    inner = net.network.add_loop()
    power = inner.add_recurrence(net.constant(1.0))
    doubled = net.op(power.get_output(0), PROD, net.constant(2.0))
    inner.add_trip_limit(net.op(doubled, LESS, n.get_output(0)), TripLimit.WHILE)
    power.set_input(1, doubled)
    largest = inner.add_loop_output(power.get_output(0), LoopOutput.LAST_VALUE).get_output(0)
    n.set_input(1, net.op(n.get_output(0), SUB, largest))
    steps.set_input(1, net.op(steps.get_output(0), SUM, net.constant(1.0)))
    outputs = [outer.add_loop_output(r.get_output(0), LoopOutput.LAST_VALUE).get_output(0) for r in (n, steps)]
    value, count = 27.0, 0
    while value > 1:
        largest_power = 1.0
        while largest_power * 2 < value:
            largest_power *= 2
        value, count = value - largest_power, count + 1
    assert [float(result) for result in net.run(*outputs)] == [value, count]


@pytest.mark.parametrize("start", [1.0, 40.0, -3.0])
def test_a_condition_that_comes_from_a_conditional_and_a_loop(start: float) -> None:
    """Goes on while twice the value (or minus the value, if negative) summed thrice is below 100."""
    net = Net()
    loop = net.network.add_loop()
    value = loop.add_recurrence(net.input(start))
    inner = net.network.add_loop()
    inner.add_trip_limit(net.constant(3, np.int32), TripLimit.COUNT)
    total = inner.add_recurrence(net.constant(0.0))
    chosen = _choose(net, net.op(net.constant(0.0), LESS, value.get_output(0)), value.get_output(0))
    total.set_input(1, net.op(total.get_output(0), SUM, chosen))
    summed = inner.add_loop_output(total.get_output(0), LoopOutput.LAST_VALUE).get_output(0)
    loop.add_trip_limit(net.op(summed, LESS, net.constant(100.0)), TripLimit.WHILE)
    value.set_input(1, net.op(net.op(value.get_output(0), PROD, net.constant(2.0)), SUM, net.constant(1.0)))
    last = loop.add_loop_output(value.get_output(0), LoopOutput.LAST_VALUE).get_output(0)
    wanted = start
    while 3 * (2 * wanted if wanted > 0 else -wanted) < 100:
        wanted = wanted * 2 + 1
    assert net.run(last)[0] == wanted


def test_a_loop_written_step_by_step_reads_shapes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    written = []
    emit = Emitter.emit_layer
    monkeypatch.setattr(Emitter, "emit_layer", lambda self, layer: (written.append(layer), emit(self, layer)))
    net = Net()
    loop = net.network.add_loop()
    state = loop.add_recurrence(net.input([1.0, 2.0]))
    following = net.op(state.get_output(0), SUM, state.get_output(0))
    assert following.shape == (2,)
    state.set_input(1, following)
    loop.add_trip_limit(net.constant(2, np.int32), TripLimit.COUNT)
    assert following.shape == (2,)
    assert len(written) == 2, "neither the next value nor the limit changes what was found"


def test_the_boundary_of_a_loop_cannot_be_removed() -> None:
    net = Net()
    item = net.network.add_loop().add_iterator(net.input([1.0])).get_output(0)
    with pytest.raises(UsageError, match="belongs to a loop or conditional"):
        net.network.remove_tensor(item)


# conditionals


def _choose(net: Net, condition: ITensor, x: ITensor) -> ITensor:
    """x * 2 when the condition holds, else -x."""
    conditional = net.network.add_if_conditional()
    conditional.set_condition(condition)
    inside = conditional.add_input(x).get_output(0)
    doubled = net.op(inside, SUM, inside)
    negated = net.network.add_unary(inside, UnaryOperation.NEG).get_output(0)
    return conditional.add_output(doubled, negated).get_output(0)


@pytest.mark.parametrize("value", [True, False])
def test_conditional(value: bool) -> None:
    net = Net()
    x = rand(2, 3)
    output = _choose(net, net.input(value, DataType.BOOL), net.input(x))
    assert output.shape == (2, 3)
    assert output.dtype == DataType.FLOAT
    np.testing.assert_allclose(net.run(output)[0], x * 2 if value else -x)
    kinds = [node.op_type for node in net.network.to_model().graph]
    assert kinds == ["If"], "what only a branch needs is in that branch"


@pytest.mark.parametrize("value", [True, False])
def test_conditional_with_several_outputs_and_shared_layers(value: bool) -> None:
    net = Net()
    x, other = rand(4), rand(4, seed=1)
    conditional = net.network.add_if_conditional()
    conditional.name = "choice"
    conditional.set_condition(net.input(value, DataType.BOOL))
    a = conditional.add_input(net.input(x)).get_output(0)
    outside = net.input(other)
    shared = net.op(a, SUM, outside)
    first = conditional.add_output(net.op(shared, PROD, a), shared).get_output(0)
    second = conditional.add_output(outside, net.op(a, SUB, outside)).get_output(0)
    results = net.run(first, second)
    wanted = ((x + other) * x, other) if value else (x + other, x - other)
    for result, want in zip(results, wanted, strict=True):
        np.testing.assert_allclose(result, want, rtol=1e-6)
    assert [node.name for node in net.network.to_model().graph] == ["choice"]


@pytest.mark.parametrize("value", [True, False])
def test_branches_of_different_shape(value: bool) -> None:
    net = Net()
    x = rand(4, 2)
    conditional = net.network.add_if_conditional()
    conditional.set_condition(net.input(value, DataType.BOOL))
    a = conditional.add_input(net.input(x)).get_output(0)
    joined = net.network.add_concatenation([a, a])
    joined.axis = 0
    output = conditional.add_output(joined.get_output(0), a).get_output(0)
    assert output.shape == (-1, 2)
    np.testing.assert_allclose(net.run(output)[0], np.concatenate([x, x]) if value else x)


@pytest.mark.parametrize(("outer", "inner"), [(True, True), (True, False), (False, True), (False, False)])
def test_nested_conditionals(outer: bool, inner: bool) -> None:
    net = Net()
    x = rand(3)
    conditional = net.network.add_if_conditional()
    conditional.set_condition(net.input(outer, DataType.BOOL))
    inside = conditional.add_input(net.input(x)).get_output(0)
    chosen = _choose(net, net.input(inner, DataType.BOOL), inside)
    shifted = net.op(inside, SUM, net.constant([1.0]))
    output = conditional.add_output(chosen, shifted).get_output(0)
    wanted = (x * 2 if inner else -x) if outer else x + 1
    np.testing.assert_allclose(net.run(output)[0], wanted, rtol=1e-6)
    assert [node.op_type for node in net.network.to_model().graph] == ["If"]


def test_a_conditional_in_a_loop() -> None:
    """Adds what is positive and twice what is negative."""
    net = Net()
    x = rand(6)
    loop = net.network.add_loop()
    loop.add_trip_limit(net.constant(6, np.int32), TripLimit.COUNT)
    item = loop.add_iterator(net.input(x)).get_output(0)
    conditional = net.network.add_if_conditional()
    conditional.set_condition(net.op(item, LESS, net.constant(0.0)))
    inside = conditional.add_input(item).get_output(0)
    value = conditional.add_output(net.op(inside, SUM, inside), inside).get_output(0)
    total = loop.add_recurrence(net.constant(0.0))
    total.set_input(1, net.op(total.get_output(0), SUM, value))
    output = loop.add_loop_output(total.get_output(0), LoopOutput.LAST_VALUE).get_output(0)
    np.testing.assert_allclose(net.run(output)[0], np.where(x < 0, 2 * x, x).sum(), rtol=1e-5)


@pytest.mark.parametrize("value", [True, False])
def test_a_loop_in_a_conditional(value: bool) -> None:
    net = Net()
    x = rand(3)
    conditional = net.network.add_if_conditional()
    conditional.set_condition(net.input(value, DataType.BOOL))
    inside = conditional.add_input(net.input(x)).get_output(0)
    loop = net.network.add_loop()
    loop.add_trip_limit(net.constant(4, np.int32), TripLimit.COUNT)
    state = loop.add_recurrence(inside)
    state.set_input(1, net.op(state.get_output(0), SUM, inside))
    summed = loop.add_loop_output(state.get_output(0), LoopOutput.LAST_VALUE).get_output(0)
    output = conditional.add_output(summed, inside).get_output(0)
    np.testing.assert_allclose(net.run(output)[0], x * 5 if value else x, rtol=1e-6)
    (node,) = net.network.to_model().graph
    assert "Loop" in [inner.op_type for inner in node.attributes["then_branch"].as_graph()]


def test_an_assertion_in_a_loop_is_checked_in_each_iteration() -> None:
    net = Net()
    loop = net.network.add_loop()
    loop.add_trip_limit(net.constant(3, np.int32), TripLimit.COUNT)
    item = loop.add_iterator(net.input([1.0, 2.0, 3.0])).get_output(0)
    net.network.add_assertion(net.op(item, LESS, net.constant(3.5)), "an item is too large")
    output = loop.add_loop_output(item, LoopOutput.CONCATENATE).get_output(0)
    np.testing.assert_allclose(net.run(output)[0], [1, 2, 3])
    with pytest.raises((InputError, DovetailError), match="an item is too large"):
        run_network(net.network, {"x0": np.array([1, 4, 2], np.float32)})


def test_an_assertion_fails_at_run_time() -> None:
    net = Net()
    x = net.input([1.0, 2.0])
    net.network.add_assertion(net.op(x, LESS, net.constant([9.0])), "x is too large")
    output = net.network.add_identity(x).get_output(0)
    np.testing.assert_allclose(net.run(output)[0], [1, 2])
    with pytest.raises(DovetailError, match="x is too large"):
        run_network(net.network, {"x0": np.array([1, 10], np.float32)})


# what is refused


def test_a_loop_without_a_limit() -> None:
    net = Net()
    loop = net.network.add_loop()
    state = loop.add_recurrence(net.input(1.0))
    state.set_input(1, state.get_output(0))
    net.network.mark_output(loop.add_loop_output(state.get_output(0), LoopOutput.LAST_VALUE).get_output(0))
    with pytest.raises(ModelError, match=r"\(Loop\): the loop has no end\n  fix: call add_trip_limit"):
        net.network.to_model()


def test_a_recurrence_without_its_next_value() -> None:
    net = Net()
    loop = net.network.add_loop()
    loop.add_trip_limit(net.constant(3, np.int32), TripLimit.COUNT)
    state = loop.add_recurrence(net.input(1.0))
    net.network.mark_output(loop.add_loop_output(state.get_output(0), LoopOutput.LAST_VALUE).get_output(0))
    with pytest.raises(ModelError, match=r"\[Recurrence\]' \(Recurrence\): input 1 \(next\) is not set"):
        net.network.to_model()


def test_a_recurrence_that_changes_its_shape() -> None:
    net = Net()
    loop = net.network.add_loop()
    loop.add_trip_limit(net.constant(3, np.int32), TripLimit.COUNT)
    state = loop.add_recurrence(net.input([1.0, 2.0]))
    joined = net.network.add_concatenation([state.get_output(0), state.get_output(0)])
    state.set_input(1, joined.get_output(0))
    net.network.mark_output(loop.add_loop_output(state.get_output(0), LoopOutput.LAST_VALUE).get_output(0))
    with pytest.raises(ModelError, match="the next value has another shape than the first"):
        net.network.to_model()


def test_limits_are_given_once() -> None:
    net = Net()
    loop = net.network.add_loop()
    loop.add_trip_limit(net.constant(3, np.int32), TripLimit.COUNT)
    with pytest.raises(UsageError, match="the loop has a COUNT limit already"):
        loop.add_trip_limit(net.constant(3, np.int32), TripLimit.COUNT)


def test_last_value_of_something_else() -> None:
    net = Net()
    loop = net.network.add_loop()
    state = loop.add_recurrence(net.input(1.0))
    following = net.op(state.get_output(0), SUM, net.constant(1.0))
    with pytest.raises(UsageError, match="LAST_VALUE takes the output of a recurrence"):
        loop.add_loop_output(following, LoopOutput.LAST_VALUE)


def test_an_output_from_inside_a_loop() -> None:
    net = Net()
    loop = net.network.add_loop()
    loop.add_trip_limit(net.constant(3, np.int32), TripLimit.COUNT)
    item = loop.add_iterator(net.input([1.0, 2.0, 3.0])).get_output(0)
    loop.add_loop_output(item, LoopOutput.CONCATENATE)
    net.network.mark_output(net.op(item, SUM, item))
    with pytest.raises(ModelError, match=r"is made inside '\(Unnamed Loop\* 0\)'"):
        net.network.to_model()


def test_a_reversed_iterator_without_a_count() -> None:
    net = Net()
    loop = net.network.add_loop()
    item = loop.add_iterator(net.input([1.0, 2.0, 3.0]), reverse=True).get_output(0)
    loop.add_trip_limit(net.op(net.constant(0.0), LESS, item), TripLimit.WHILE)
    net.network.mark_output(loop.add_loop_output(item, LoopOutput.CONCATENATE).get_output(0))
    with pytest.raises(ModelError, match="a reversed iterator needs to know how often the loop runs"):
        net.network.to_model()


def test_what_enters_a_loop_cannot_come_from_it() -> None:
    net = Net()
    loop = net.network.add_loop()
    loop.add_trip_limit(net.constant(3, np.int32), TripLimit.COUNT)
    state = loop.add_recurrence(net.input(1.0))
    state.set_input(1, state.get_output(0))
    state.set_input(0, net.op(state.get_output(0), SUM, net.constant(1.0)))
    net.network.mark_output(loop.add_loop_output(state.get_output(0), LoopOutput.LAST_VALUE).get_output(0))
    with pytest.raises(ModelError, match="cannot enter it"):
        net.network.to_model()


def test_a_conditional_without_a_condition() -> None:
    net = Net()
    conditional = net.network.add_if_conditional()
    x = conditional.add_input(net.input(1.0)).get_output(0)
    net.network.mark_output(conditional.add_output(x, x).get_output(0))
    with pytest.raises(ModelError, match="the conditional has no condition"):
        net.network.to_model()


def test_branches_of_different_type_or_rank() -> None:
    net = Net()
    conditional = net.network.add_if_conditional()
    conditional.set_condition(net.input(True, DataType.BOOL))
    x = conditional.add_input(net.input([1.0])).get_output(0)
    whole = net.network.add_cast(x, DataType.INT32).get_output(0)
    with pytest.raises(ModelError, match="the inputs have different types"):
        _ = conditional.add_output(x, whole).get_output(0).dtype
    total = net.network.add_reduce(x, ReduceOperation.SUM, 1, False).get_output(0)
    with pytest.raises(ModelError, match="the branches give tensors of different rank"):
        _ = conditional.add_output(x, total).get_output(0).shape


def test_an_assertion_of_no_branch() -> None:
    net = Net()
    conditional = net.network.add_if_conditional()
    conditional.set_condition(net.input(True, DataType.BOOL))
    x = conditional.add_input(net.input(1.0)).get_output(0)
    net.network.add_assertion(net.op(x, LESS, net.constant(3.0)), "too large")
    net.network.mark_output(conditional.add_output(x, x).get_output(0))
    with pytest.raises(ModelError, match="belongs to neither branch"):
        net.network.to_model()
