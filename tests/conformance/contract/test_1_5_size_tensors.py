"""Rule 1.5: output dims that only the data decides: declared, bounded, written by the plugin, read by what follows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dovetail as trt
from dovetail.plugin import as_array
from tests.conformance.contract.authors import LINEAR, Plus, PlusCreator, build, details, load, one_plugin

X = np.array([3, -1, 4, -1, 5, -9, 2, 6], np.float32)


class Positive(Plus):
    """The positive elements of a vector, in order, and their number."""

    size_type: Any = trt.int32

    def __init__(self, addend: float = 0.0, trace: Any = None) -> None:
        super().__init__(addend, trace)
        self.num_outputs = 2

    def get_output_data_types(self, input_types: Any) -> Any:
        return [input_types[0], self.size_type]

    def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
        upper_bound = inputs[0][0]
        opt_value = exprBuilder.operation(trt.DimensionOperation.FLOOR_DIV, upper_bound, exprBuilder.constant(2))
        num_positive = exprBuilder.declare_size_tensor(1, opt_value, upper_bound)
        output_dims = [trt.DimsExprs(1), trt.DimsExprs(0)]
        output_dims[0][0] = num_positive
        return output_dims

    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> bool:
        wanted = self.size_type if pos == 2 else in_out[0].desc.type
        return in_out[pos].desc.format == LINEAR and in_out[pos].desc.type == wanted

    def compute(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any) -> None:
        x = as_array(inputs[0], input_desc[0])
        found = x[x > 0]
        as_array(outputs[0], output_desc[0], shape=found.shape)[...] = found
        as_array(outputs[1], output_desc[1])[...] = found.size


PROFILE = [{"x": ((0,), (8,), (64,))}]


@pytest.mark.parametrize("size_type", [trt.int32, trt.int64], ids=lambda d: d.name)
@pytest.mark.parametrize("dtype", [trt.float32, trt.float16], ids=lambda d: d.name)
def test_both_integer_types_serve_as_size_tensors(size_type: Any, dtype: Any) -> None:
    cls = type("Sized", (Positive,), {"size_type": size_type})
    engine = load(build(one_plugin(cls(), (-1,), dtype), profiles=PROFILE), PlusCreator(cls))
    x = X.astype(dtype.numpy)
    for part in (x, x[:3], -np.abs(x), x[:0], np.tile(x, 8)):
        result = engine(np.ascontiguousarray(part))
        np.testing.assert_array_equal(result["y0"], part[part > 0])
        assert result["y1"].dtype == size_type.numpy
        assert result["y1"].shape == ()
        assert result["y1"] == (part > 0).sum()


def test_unused_size_tensors_still_work() -> None:
    def fill(network: Any) -> Any:
        return network.add_plugin_v3([network.add_input("x", trt.float32, (8,))], [], Positive()).get_output(0)

    np.testing.assert_array_equal(load(build(fill), PlusCreator(Positive))(X), X[X > 0])


def test_the_tensors_shape_is_unknown_in_the_network_and_the_engine() -> None:
    network = trt.Builder().create_network()
    layer = network.add_plugin_v3([network.add_input("x", trt.float32, (8,))], [], Positive())
    assert layer.get_output(0).shape == (-1,)
    assert layer.get_output(1).shape == ()
    engine = load(build(one_plugin(Positive(), (8,))), PlusCreator(Positive))
    assert engine.get_tensor_shape("y0") == (-1,)
    assert engine.get_tensor_shape("y1") == ()


def test_bounds_in_the_build_are_none_opt_and_upper() -> None:
    trace: list[Any] = []
    build(one_plugin(Positive(0.0, trace), (-1,)), profiles=[{"x": ((2,), (8,), (64,))}])
    _, (y, size) = details(trace, "configure_plugin")[0]
    assert y.desc.dims == (-1,)
    assert (y.opt, y.max) == ((4,), (64,))
    assert (size.desc.dims, size.desc.type) == ((), trt.int32)


def test_descriptors_have_wildcards_in_the_build_and_in_runs() -> None:
    class Tuned(Positive):
        tactics = (1, 2)

    trace: list[Any] = []
    plan = build(one_plugin(Tuned(0.0, trace), (8,)))
    told = details(trace, "on_shape_change")
    assert told
    runs: list[Any] = []
    load(plan, PlusCreator(Tuned, runs))(X)
    for inputs, outputs in told + details(runs, "on_shape_change"):
        assert [d.dims for d in inputs] == [(8,)]
        assert [d.dims for d in outputs] == [(-1,), ()]


def test_memory_is_as_large_as_the_upper_bound() -> None:
    class Greedy(Positive):
        def compute(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any) -> None:
            n = input_desc[0].dims[0]
            as_array(outputs[0], output_desc[0], shape=(n,))[...] = np.arange(n)
            as_array(outputs[1], output_desc[1])[...] = n

    engine = load(build(one_plugin(Greedy(), (-1,)), profiles=PROFILE), PlusCreator(Greedy))
    for n in (64, 1, 64):
        np.testing.assert_array_equal(engine(np.zeros(n, np.float32))["y0"], np.arange(n))


def test_memory_while_timing_is_as_large_as_the_upper_bound_too() -> None:
    class Greedy(Positive):
        """Tuned for one element, but it writes as many as it may: with less memory this ends the process."""

        tactics = (1, 2)

        def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
            size = exprBuilder.declare_size_tensor(1, exprBuilder.constant(1), inputs[0][0])
            return [trt.DimsExprs([size]), trt.DimsExprs(0)]

        def compute(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any) -> None:
            self.note("shape", tuple(input_desc[0].dims))
            as_array(outputs[0], output_desc[0], shape=input_desc[0].dims)[...] = 1
            as_array(outputs[1], output_desc[1])[...] = input_desc[0].dims[0]

    trace: list[Any] = []
    build(one_plugin(Greedy(0.0, trace), (-1,)), profiles=[{"x": ((1,), (1 << 18,), (1 << 19,))}])
    assert set(details(trace, "shape")) == {(1 << 18,)}


@pytest.mark.parametrize("size", [9, -1])
def test_a_size_out_of_its_bound_is_an_error(size: int) -> None:
    class Liar(Positive):
        def compute(self, *args: Any) -> None:
            super().compute(*args)
            as_array(args[3][1], args[1][1])[...] = size

    engine = load(build(one_plugin(Positive(), (8,))), PlusCreator(Liar))
    with pytest.raises(trt.PluginError, match="size tensor"):
        engine(X)


def test_what_follows_sees_the_actual_size() -> None:
    trace: list[Any] = []

    def fill(network: Any) -> Any:
        x = network.add_input("x", trt.float32, (-1,))
        layer = network.add_plugin_v3([x], [], Positive())
        y = network.add_plugin_v3([layer.get_output(0)], [], Plus(10.0)).get_output(0)
        total = network.add_reduce(y, trt.ReduceOperation.SUM, 1, keep_dims=False).get_output(0)
        return [y, network.add_shape(y).get_output(0), total]

    class Creators(PlusCreator):
        def create_plugin(self, name: str, fc: Any, phase: Any) -> Any:
            addend = float(fc[0].data[0])
            return Plus(addend, trace) if addend else Positive(addend)

    engine = load(build(fill, profiles=PROFILE), Creators())
    for x in (X, X[:3], X):
        result = engine(x)
        kept = x[x > 0] + 10
        np.testing.assert_array_equal(result["y0"], kept)
        assert result["y1"].tolist() == [kept.size]
        assert result["y2"] == kept.sum()
    assert [d[0][0].dims[0] for d in details(trace, "on_shape_change")] == [5, 2, 5]


def test_two_outputs_may_share_a_size_and_two_sizes_may_make_a_shape() -> None:
    class Grid(Positive):
        """Rows and columns that have a positive element, their numbers, and the row indices."""

        def __init__(self, addend: float = 0.0, trace: Any = None) -> None:
            super().__init__(addend, trace)
            self.num_outputs = 4

        def get_output_data_types(self, input_types: Any) -> Any:
            return [trt.float32, trt.int32, trt.int64, trt.int64]

        def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
            rows = exprBuilder.declare_size_tensor(2, exprBuilder.constant(1), inputs[0][0])
            columns = exprBuilder.declare_size_tensor(3, exprBuilder.constant(1), inputs[0][1])
            return [trt.DimsExprs([rows, columns]), trt.DimsExprs([rows]), trt.DimsExprs(0), trt.DimsExprs()]

        def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> bool:
            return bool(in_out[pos].desc.format == LINEAR)

        def compute(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any) -> None:
            x = as_array(inputs[0], input_desc[0])
            rows, columns = np.nonzero((x > 0).any(1))[0], np.nonzero((x > 0).any(0))[0]
            part = x[np.ix_(rows, columns)]
            as_array(outputs[0], output_desc[0], shape=part.shape)[...] = part
            as_array(outputs[1], output_desc[1], shape=rows.shape)[...] = rows
            as_array(outputs[2], output_desc[2])[...] = rows.size
            as_array(outputs[3], output_desc[3])[...] = columns.size

    x = np.array([[0, 0, 0], [1, 0, 2], [0, 0, 0], [3, 0, 4]], np.float32)
    result = load(build(one_plugin(Grid(), (4, 3))), PlusCreator(Grid))(x)
    np.testing.assert_array_equal(result["y0"], [[1, 2], [3, 4]])
    assert result["y1"].tolist() == [1, 3]
    assert (result["y2"], result["y3"]) == (2, 2)


def _declaring(**changes: Any) -> type[Positive]:
    return type("Declaring", (Positive,), changes)


def _shapes(make: Any) -> dict[str, Any]:
    return {"get_output_shapes": lambda self, inputs, shape_inputs, builder: make(inputs[0][0], builder)}


@pytest.mark.parametrize(
    "make",
    [
        lambda n, b: [trt.DimsExprs([b.declare_size_tensor(1, n, n)]), trt.DimsExprs([b.constant(1)])],
        lambda n, b: [trt.DimsExprs([b.declare_size_tensor(7, n, n)]), trt.DimsExprs(0)],
        lambda n, b: [trt.DimsExprs([b.declare_size_tensor(-1, n, n)]), trt.DimsExprs(0)],
        lambda n, b: [trt.DimsExprs([b.declare_size_tensor(1, b.declare_size_tensor(1, n, n), n)]), trt.DimsExprs(0)],
        lambda n, b: [
            trt.DimsExprs([b.operation(trt.DimensionOperation.SUM, b.declare_size_tensor(1, n, n), b.constant(1))]),
            trt.DimsExprs(0),
        ],
    ],
    ids=["not 0-D", "no such output", "negative output", "opt is a size tensor", "arithmetic"],
)
def test_declarations_that_break_the_rule(make: Any) -> None:
    with pytest.raises(trt.PluginError, match=r"size.tensor"):
        build(one_plugin(_declaring(**_shapes(make))(), (8,)))


@pytest.mark.parametrize("dtype", [trt.float32, trt.int8, trt.bool], ids=lambda d: d.name)
def test_a_size_tensor_is_an_integer(dtype: Any) -> None:
    with pytest.raises(trt.PluginError, match=r"size.tensor"):
        build(one_plugin(_declaring(size_type=dtype)(), (8,)))


def test_data_dependent_inside_a_loop() -> None:
    def fill(network: Any) -> Any:
        x = network.add_input("x", trt.float32, (8,))
        loop = network.add_loop()
        count = network.add_constant((), np.array(3, np.int32)).get_output(0)
        loop.add_trip_limit(count, trt.TripLimit.COUNT)
        state = loop.add_recurrence(x)
        found = network.add_plugin_v3([x], [], Positive())
        total = network.add_reduce(found.get_output(0), trt.ReduceOperation.SUM, 1, keep_dims=True).get_output(0)
        added = network.add_elementwise(state.get_output(0), total, trt.ElementWiseOperation.SUM).get_output(0)
        state.set_input(1, added)
        return loop.add_loop_output(state.get_output(0), trt.LoopOutput.LAST_VALUE).get_output(0)

    result = load(build(fill), PlusCreator(Positive))(X)
    np.testing.assert_array_equal(result, X + 3 * X[X > 0].sum())


# reading data-dependent outputs


class Buffer(trt.IOutputAllocator):
    def __init__(self) -> None:
        trt.IOutputAllocator.__init__(self)
        self.memory: Any = None
        self.calls: list[Any] = []

    def reallocate_output(self, tensor_name: str, memory: int, size: int, alignment: int) -> int:
        self.calls.append(("reallocate", tensor_name, size))
        self.memory = np.zeros(max(size, 1), np.uint8)
        return self.memory.ctypes.data

    def notify_shape(self, tensor_name: str, shape: Any) -> None:
        self.calls.append(("notify", tensor_name, tuple(shape)))


class AsyncBuffer(Buffer):
    def reallocate_output(self, *args: Any) -> int:
        raise AssertionError("the stream-ordered form is there")

    def reallocate_output_async(self, tensor_name: str, memory: int, size: int, alignment: int, stream: int) -> int:
        self.calls.append(("stream", stream, None))
        return super().reallocate_output(tensor_name, memory, size, alignment)


@pytest.mark.parametrize("cls", [Buffer, AsyncBuffer])
def test_output_allocators_give_memory_and_are_told_the_shape(cls: type[Buffer]) -> None:
    engine = load(build(one_plugin(Positive(), (-1,)), profiles=PROFILE), PlusCreator(Positive))
    context = engine.create_execution_context()
    allocator, count = cls(), np.zeros((), np.int32)
    for x in (X, X[:3].copy()):
        context.set_input_shape("x", x.shape)
        context.set_tensor_address("x", x.ctypes.data)
        context.set_tensor_address("y1", count.ctypes.data)
        context.set_output_allocator("y0", allocator)
        assert context.get_output_allocator("y0") is allocator
        assert context.execute_async_v3(5)
        kept = x[x > 0]
        assert count == kept.size
        np.testing.assert_array_equal(allocator.memory.view(np.float32)[: kept.size], kept)
        assert allocator.calls[-1] == ("notify", "y0", (kept.size,))
        assert allocator.calls[-2][0] == "reallocate"
        assert allocator.calls[-2][2] >= kept.nbytes
    if cls is AsyncBuffer:
        assert ("stream", 5, None) in allocator.calls


def test_memory_of_the_largest_size_serves_without_an_allocator() -> None:
    engine = load(build(one_plugin(Positive(), (-1,)), profiles=PROFILE), PlusCreator(Positive))
    context = engine.create_execution_context()
    context.set_input_shape("x", X.shape)
    assert context.get_max_output_size("y0") >= X.nbytes
    y, count = np.zeros(context.get_max_output_size("y0"), np.uint8), np.zeros((), np.int32)
    for name, array in (("x", X), ("y0", y), ("y1", count)):
        context.set_tensor_address(name, array.ctypes.data)
    assert context.execute_async_v3(0)
    np.testing.assert_array_equal(y.view(np.float32)[: int(count)], X[X > 0])


def test_the_bar_of_the_documents() -> None:
    """Dims from a shape input's value, a constant, an input's dim and the data, in one output."""

    class Bar(Positive):
        def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
            upper = exprBuilder.operation(trt.DimensionOperation.PROD, inputs[0][2], inputs[0][3])
            opt = exprBuilder.operation(trt.DimensionOperation.FLOOR_DIV, upper, exprBuilder.constant(2))
            y = trt.DimsExprs(4)
            y[0] = shape_inputs[0][0]
            y[1] = exprBuilder.constant(3)
            y[2] = inputs[0][0]
            y[3] = exprBuilder.declare_size_tensor(1, opt, upper)
            return [y, trt.DimsExprs()]

        def compute(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any) -> None:
            x = as_array(inputs[0], input_desc[0])
            found = int((x[0, 0] > 0).sum())
            assert output_desc[0].dims[3] == -1
            shape = (*output_desc[0].dims[:3], found)
            as_array(outputs[0], output_desc[0], shape=shape)[...] = found
            as_array(outputs[1], output_desc[1])[...] = found

    def fill(network: Any) -> Any:
        x = network.add_input("x", trt.float32, (-1, 2, 4, 5))
        s = network.add_input("s", trt.int32, (1,))
        layer = network.add_plugin_v3([x], [s], Bar())
        return [layer.get_output(0), layer.get_output(1)]

    def configure(config: Any) -> None:
        profile = trt.OptimizationProfile()
        profile.set_shape("x", (1, 2, 4, 5), (2, 2, 4, 5), (8, 2, 4, 5))
        profile.set_shape_input("s", (1,), (2,), (9,))
        config.add_optimization_profile(profile)

    engine = load(build(fill, configure=configure), PlusCreator(Bar))
    x = np.full((3, 2, 4, 5), -1, np.float32)
    x[0, 0, 1] = 1
    result = engine(x, np.array([7], np.int32))
    assert result["y0"].shape == (7, 3, 3, 5)
    assert (result["y0"] == 5).all()
