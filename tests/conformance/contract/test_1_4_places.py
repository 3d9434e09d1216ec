"""Where a plugin can be: twice, in loops and branches, over every type, over empty tensors, with shared resources."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dovetail as trt
from dovetail.plugin import as_array
from tests.conformance.contract.authors import (
    Filled,
    Plus,
    PlusCreator,
    build,
    details,
    load,
    one_plugin,
    run_bound,
)

X = np.arange(6, dtype=np.float32).reshape(2, 3)


# places a plugin can be in


def test_one_object_added_twice_gives_two_layers() -> None:
    plugin = Plus(2.0)

    def fill(network: Any) -> Any:
        x = network.add_input("x", trt.float32, (2, 3))
        first = network.add_plugin_v3([x], [], plugin)
        plugin.addend = 30.0
        second = network.add_plugin_v3([first.get_output(0)], [], plugin)
        assert first.plugin is not second.plugin
        return second.get_output(0)

    np.testing.assert_array_equal(load(build(fill), PlusCreator())(X), X + 32)


def test_one_tensor_as_two_inputs() -> None:
    class Adding(Plus):
        def compute(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any) -> None:
            a, b = (as_array(p, d) for p, d in zip(inputs, input_desc, strict=True))
            as_array(outputs[0], output_desc[0])[...] = a + b

    def fill(network: Any) -> Any:
        x = network.add_input("x", trt.float32, (2, 3))
        return network.add_plugin_v3([x, x], [], Adding()).get_output(0)

    np.testing.assert_array_equal(load(build(fill), PlusCreator(Adding))(X), 2 * X)


class ViaMemory(Plus):
    """y = x + addend, written in two steps so that sharing memory with x would show."""

    def compute(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any) -> None:
        x, y = as_array(inputs[0], input_desc[0]), as_array(outputs[0], output_desc[0])
        y[...] = y.dtype.type(0)
        y[...] = (x + x.dtype.type(self.addend)).astype(y.dtype)


def _loop(network: Any, plugin: Any, dtype: Any = trt.float32) -> list[Any]:
    x = network.add_input("x", dtype, (4,))
    loop = network.add_loop()
    count = network.add_constant((), np.array(3, np.int32)).get_output(0)
    loop.add_trip_limit(count, trt.TripLimit.COUNT)
    state = loop.add_recurrence(x)
    y = network.add_plugin_v3([state.get_output(0)], [], plugin).get_output(0)
    state.set_input(1, y)
    last = loop.add_loop_output(state.get_output(0), trt.LoopOutput.LAST_VALUE)
    every = loop.add_loop_output(y, trt.LoopOutput.CONCATENATE, 0)
    every.set_input(1, count)
    return [last.get_output(0), every.get_output(0)]


@pytest.mark.parametrize("dtype", [trt.float32, trt.float16, trt.int8, trt.int4], ids=lambda d: d.name)
def test_in_the_body_of_a_loop(dtype: Any) -> None:
    trace: list[Any] = []

    class Typed(ViaMemory):
        def compute(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any) -> None:
            if dtype != trt.int4:
                return super().compute(input_desc, output_desc, inputs, outputs)
            x, y = as_array(inputs[0], input_desc[0]), as_array(outputs[0], output_desc[0])
            y[...] = 0
            y[...] = x + np.uint8(0x11)  # two elements a byte, none of them overflows here
            return None

    engine = load(build(lambda n: _loop(n, Typed(), dtype)), PlusCreator(Typed, trace))
    x = np.arange(4).astype(dtype.numpy)
    for _ in range(2):
        result = engine(x)
        np.testing.assert_array_equal(result["y0"].astype(int), np.arange(4) + 3)
        np.testing.assert_array_equal(result["y1"].astype(int), [np.arange(4) + i for i in (1, 2, 3)])
    assert len(details(trace, "enqueue")) == 6
    assert len({n for n, m, _ in trace if m == "enqueue"}) == 1


def test_in_nested_loops() -> None:
    def fill(network: Any) -> Any:
        def loop(count: int) -> Any:
            made = network.add_loop()
            made.add_trip_limit(network.add_constant((), np.array(count, np.int32)).get_output(0), trt.TripLimit.COUNT)
            return made

        outer, inner = loop(2), loop(3)
        state = outer.add_recurrence(network.add_input("x", trt.float32, (2,)))
        deep = inner.add_recurrence(state.get_output(0))
        deep.set_input(1, network.add_plugin_v3([deep.get_output(0)], [], ViaMemory(1.0)).get_output(0))
        result = inner.add_loop_output(deep.get_output(0), trt.LoopOutput.LAST_VALUE).get_output(0)
        state.set_input(1, network.add_plugin_v3([result], [], ViaMemory(10.0)).get_output(0))
        return outer.add_loop_output(state.get_output(0), trt.LoopOutput.LAST_VALUE).get_output(0)

    np.testing.assert_array_equal(load(build(fill), PlusCreator(ViaMemory))(np.zeros(2, np.float32)), [26, 26])


def test_slices_of_an_iterator_come_as_whole_tensors() -> None:
    def fill(network: Any) -> Any:
        x = network.add_input("x", trt.float32, (2, 4))
        loop = network.add_loop()
        count = network.add_constant((), np.array(3, np.int32)).get_output(0)
        loop.add_trip_limit(count, trt.TripLimit.COUNT)
        column = loop.add_iterator(x, axis=1).get_output(0)
        y = network.add_plugin_v3([column], [], Plus()).get_output(0)
        output = loop.add_loop_output(y, trt.LoopOutput.REVERSE, 1)
        output.set_input(1, count)
        return output.get_output(0)

    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    np.testing.assert_array_equal(load(build(fill), PlusCreator())(x), x[:, 2::-1] + 1)


def test_a_shape_input_that_changes_from_turn_to_turn() -> None:
    def fill(network: Any) -> Any:
        x = network.add_input("x", trt.float32, (2,))
        one = network.add_constant((1,), np.array([1], np.int32)).get_output(0)
        loop = network.add_loop()
        loop.add_trip_limit(network.add_constant((), np.array(3, np.int32)).get_output(0), trt.TripLimit.COUNT)
        count = loop.add_recurrence(one)
        more = network.add_elementwise(count.get_output(0), one, trt.ElementWiseOperation.SUM).get_output(0)
        count.set_input(1, more)
        filled = network.add_plugin_v3([x], [more], Filled(2.0)).get_output(0)
        part = network.add_reduce(filled, trt.ReduceOperation.SUM, 1, keep_dims=True).get_output(0)
        total = loop.add_recurrence(network.add_constant((1,), np.zeros(1, np.float32)).get_output(0))
        total.set_input(
            1, network.add_elementwise(total.get_output(0), part, trt.ElementWiseOperation.SUM).get_output(0)
        )
        return loop.add_loop_output(total.get_output(0), trt.LoopOutput.LAST_VALUE).get_output(0)

    trace: list[Any] = []
    engine = load(build(fill), PlusCreator(Filled, trace))
    assert engine(np.zeros(2, np.float32)) == [2 * (2 + 3 + 4)]
    assert [d[1][0].dims for d in details(trace, "on_shape_change")] == [(2,), (3,), (4,)]


def test_dims_that_only_the_run_knows_fit_each_other_while_timing() -> None:
    class Wide(Plus):
        """Much wider than its input: with memory for less this ends the process."""

        tactics = (1, 2)

        def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
            many = exprBuilder.constant(1 << 18)
            return [trt.DimsExprs([exprBuilder.operation(trt.DimensionOperation.PROD, inputs[0][1], many)])]

        def compute(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any) -> None:
            count = input_desc[0].dims[1] << 18
            assert output_desc[0].dims == (count,)
            as_array(outputs[0], output_desc[0])[...] = count

    def fill(network: Any) -> Any:
        found = network.add_non_zero(network.add_input("x", trt.float32, (2, 3)), trt.int32).get_output(0)
        return network.add_plugin_v3([found], [], Wide()).get_output(0)

    assert load(build(fill), PlusCreator(Wide))(np.ones((2, 3), np.float32)).shape == (6 << 18,)


def test_in_the_branches_of_a_conditional() -> None:
    trace: list[Any] = []

    def fill(network: Any) -> Any:
        x = network.add_input("x", trt.float32, (2, 3))
        condition = network.add_input("c", trt.bool, ())
        chosen = network.add_if_conditional()
        chosen.set_condition(condition)
        inside = chosen.add_input(x).get_output(0)
        yes = network.add_plugin_v3([inside], [], Plus(1.0)).get_output(0)
        no = network.add_plugin_v3([inside], [], Plus(100.0)).get_output(0)
        return chosen.add_output(yes, no).get_output(0)

    engine = load(build(fill), PlusCreator(Plus, trace))
    np.testing.assert_array_equal(engine(X, np.array(True)), X + 1)
    np.testing.assert_array_equal(engine(X, np.array(False)), X + 100)
    assert len(details(trace, "enqueue")) == 2  # only the branch that is taken


# every type


@pytest.mark.parametrize("dtype", list(trt.DataType), ids=lambda d: d.name)
@pytest.mark.parametrize("shape", [(2, 3), (3,), ()])
def test_every_type_goes_through_a_plugin(dtype: Any, shape: tuple[int, ...]) -> None:
    class Copy(Plus):
        def compute(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any) -> None:
            assert input_desc[0].type == output_desc[0].type == dtype
            as_array(outputs[0], output_desc[0])[...] = as_array(inputs[0], input_desc[0])

    engine = load(build(one_plugin(Copy(), shape, dtype)), PlusCreator(Copy))
    x = np.array([1, 0, 1, 1, 0, 1])[: max(int(np.prod(shape)), 1)].reshape(shape).astype(dtype.numpy)
    y = engine(x)
    assert y.dtype == x.dtype
    assert y.shape == shape
    assert y.tobytes() == x.tobytes()


def test_four_bit_memory_by_address_is_packed() -> None:
    class Copy(Plus):
        def compute(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any) -> None:
            as_array(outputs[0], output_desc[0])[...] = as_array(inputs[0], input_desc[0])

    engine = load(build(one_plugin(Copy(), (2, 3), trt.int4)), PlusCreator(Copy))
    context = engine.create_execution_context()
    x = np.array([0x21, 0x43, 0x65, 99, 99, 99], np.uint8)  # three bytes are the tensor
    y = np.full(6, 77, np.uint8)
    context.set_tensor_address("x", x.ctypes.data)
    context.set_tensor_address("y0", y.ctypes.data)
    assert context.execute_async_v3(0)
    assert y.tolist() == [0x21, 0x43, 0x65, 77, 77, 77]


# empty tensors


@pytest.mark.parametrize("shape", [(0, 3), (2, 0)])
def test_empty_tensors_reach_enqueue_with_their_dims(shape: tuple[int, int]) -> None:
    trace: list[Any] = []
    plan = build(one_plugin(Plus(), (-1, -1)), profiles=[{"x": ((0, 0), (2, 3), (4, 4))}])
    engine = load(plan, PlusCreator(Plus, trace))
    assert engine(np.zeros(shape, np.float32)).shape == shape
    assert tuple(details(trace, "on_shape_change")[0][0][0].dims) == shape
    assert details(trace, "enqueue")[0][1] == [shape]
    assert engine(np.zeros((2, 3), np.float32)).shape == (2, 3)
    context = engine.create_execution_context()
    result = run_bound(engine, {"x": np.zeros(shape, np.float32)}, context)
    assert result["y0"].shape == shape


def test_resources_taken_on_shape_changes_are_given_back_in_destroy() -> None:
    released: list[str] = []

    class Table(trt.IPluginResource):
        def __init__(self) -> None:
            trt.IPluginResource.__init__(self)
            self.values: Any = None

        def clone(self) -> Any:
            twin = Table()
            twin.values = np.full(3, 5.0, np.float32)
            return twin

        def release(self) -> None:
            released.append("table")
            self.values = None

    class Sharing(Plus):
        table: Any = None

        def on_shape_change(self, inp: Any, out: Any) -> None:
            if self.table is None:
                self.table = trt.get_plugin_registry().acquire_plugin_resource("contract-table", Table())

        def compute(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any) -> None:
            x = as_array(inputs[0], input_desc[0])
            as_array(outputs[0], output_desc[0])[...] = x + self.table.values

        def destroy(self) -> None:
            if self.table is not None:
                self.table = None
                trt.get_plugin_registry().release_plugin_resource("contract-table")

    engine = load(build(one_plugin(Sharing())), PlusCreator(Sharing))
    assert released == ["table"]  # by the object that ran in the build
    released.clear()
    contexts = [engine.create_execution_context() for _ in range(2)]
    for context in contexts:
        np.testing.assert_array_equal(run_bound(engine, {"x": X}, context)["y0"], X + 5)
    assert released == []
    contexts[0].close()
    assert released == []
    contexts[1].close()
    assert released == ["table"]
