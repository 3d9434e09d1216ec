"""Runs that repeat the one before: the same results and errors as a run that looks at everything."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import dovetail as dt
from dovetail.plugin import address_of
from dovetail.plugin.quick import layer
from tests.cpu.runtime.test_dynamic import _Allocator, _positive_engine
from tests.support.plugins import PlainCreator, ScalePlugin

SHAPE = (2, 3)


def make_engine(nodes: list[Any], inputs: str = "x", **options: Any) -> dt.Engine:
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in inputs]
    result = helper.make_tensor_value_info("z", TensorProto.FLOAT, SHAPE)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("trt.plugins", 1)]
    model = helper.make_model(helper.make_graph(nodes, "g", ports, [result]), opset_imports=opsets, ir_version=10)
    return dt.compile(model, providers=["cpu"], **options)


def plugin_node(op: str, inputs: list[str], output: str, **attributes: Any) -> Any:
    return helper.make_node(op, inputs, [output], domain="trt.plugins", **attributes)


def start(engine: dt.Engine, **inputs: float) -> tuple[Any, dict[str, Any]]:
    """A context after a run by address, and the arrays it ran over."""
    arrays = {name: np.full(SHAPE, value, np.float32) for name, value in inputs.items()}
    arrays["z"] = np.zeros(SHAPE, np.float32)
    context = engine.create_execution_context()
    for name, array in arrays.items():
        context.set_tensor_address(name, address_of(array))
    context.execute_async_v3(0)
    return context, arrays


@layer("repeat_scaled")
def scaled(x: Any, *, factor: float = 1.0) -> Any:
    return x * np.float32(factor)


@layer("repeat_doubled")
def doubled(x: Any) -> Any:
    return x + x


@layer("repeat_sum_into")
def sum_into(x: Any, y: Any, *, out: Any) -> None:
    np.add(x, y, out=out)


GRAPHS = {
    "a kernel": ([helper.make_node("Relu", ["x"], ["z"])], lambda x: x),
    "kernels": (
        [helper.make_node("Add", ["x", "x"], ["a"]), helper.make_node("Where", ["c", "a", "x"], ["z"])],
        lambda x: 2 * x,
    ),
    "a layer": ([plugin_node("repeat_doubled", ["x"], "z")], lambda x: 2 * x),
    "a layer with an attribute": ([plugin_node("repeat_scaled", ["x"], "z", factor=3.0)], lambda x: 3 * x),
    "a layer with out": ([plugin_node("repeat_sum_into", ["x", "x"], "z")], lambda x: 2 * x),
    "kernels around a layer": (
        [
            helper.make_node("Add", ["x", "x"], ["a"]),
            plugin_node("repeat_doubled", ["a"], "b"),
            helper.make_node("Relu", ["b"], ["z"]),
        ],
        lambda x: 4 * x,
    ),
    "layers one after another": (
        [plugin_node("repeat_doubled", ["x"], "a"), plugin_node("repeat_doubled", ["a"], "z")],
        lambda x: 4 * x,
    ),
}
TRUE = helper.make_node("Constant", [], ["c"], value=helper.make_tensor("c", TensorProto.BOOL, [1], [True]))


@pytest.mark.parametrize("kind", GRAPHS)
def test_a_repeated_run_reads_and_writes_the_same_memory(kind: str) -> None:
    nodes, expected = GRAPHS[kind]
    context, arrays = start(make_engine([TRUE, *nodes] if kind == "kernels" else nodes), x=1)
    run = context.bind_run()
    for number in range(2, 5):
        arrays["x"][...], arrays["z"][...] = number, -1
        run()
        np.testing.assert_array_equal(arrays["z"], expected(number))


def test_values_that_a_step_makes_anew_are_read_anew() -> None:
    nodes = [
        helper.make_node("NonZero", ["x"], ["places"]),  # its size is known after the run only
        helper.make_node("Transpose", ["places"], ["pairs"]),
        helper.make_node("GatherND", ["x", "pairs"], ["found"]),
        helper.make_node("ReduceSum", ["found"], ["total"], keepdims=0),
        helper.make_node("Add", ["x", "total"], ["z"]),
    ]
    context, arrays = start(make_engine(nodes), x=1)
    run = context.bind_run()
    for number, zeros in ((2, 1), (3, 4), (5, 0)):
        arrays["x"][...] = number
        arrays["x"].reshape(-1)[:zeros] = 0
        run()
        np.testing.assert_array_equal(arrays["z"], arrays["x"] + number * (6 - zeros))


def test_nothing_is_bound_before_a_run_or_after_a_change() -> None:
    engine = make_engine([helper.make_node("Relu", ["x"], ["z"])])
    assert engine.create_execution_context().bind_run() is None
    context, arrays = start(engine, x=1)
    context.set_tensor_address("x", address_of(arrays["z"]))
    assert context.bind_run() is None
    context.execute_async_v3(0)
    assert context.bind_run() is not None
    context.profiler = dt.IProfiler()
    assert context.bind_run() is None


def test_nothing_is_bound_where_a_run_ends_with_an_allocator() -> None:
    engine = make_engine([helper.make_node("Relu", ["x"], ["z"])])
    context, _ = start(engine, x=1)
    context.set_output_allocator("z", _Allocator())
    context.execute_async_v3(0)
    assert context.bind_run() is None


def test_nothing_is_bound_for_results_that_only_the_run_sizes() -> None:
    context = _positive_engine().create_execution_context()
    array = np.ones(8, np.float32)
    context.set_input_shape("x", array.shape)
    context.set_tensor_address("x", address_of(array))
    for tensor in context.engine.manifest.outputs:
        context.set_output_allocator(tensor.name, _Allocator())
    context.execute_async_v3(0)
    assert context.bind_run() is None


class Failing(ScalePlugin):
    is_failing = False

    def enqueue(self, *args: Any) -> None:
        if Failing.is_failing:
            raise ValueError("no more")
        super().enqueue(*args)


def failing_engine() -> dt.Engine:
    registry = dt.PluginRegistry()
    registry.register_creator(PlainCreator("TestScale", lambda factor: Failing(factor)), "")
    node = plugin_node("TestScale", ["x"], "z", factor=2.0)
    return make_engine([node], registry=registry)


@pytest.mark.parametrize("is_repeated", [False, True])
def test_a_plugin_that_fails_is_named_and_reported(monkeypatch: pytest.MonkeyPatch, is_repeated: bool) -> None:
    context, _ = start(failing_engine(), x=1)
    run = context.bind_run() if is_repeated else context.execute_async_v3
    monkeypatch.setattr(Failing, "is_failing", True)
    with pytest.raises(dt.PluginError, match=r"TestScale.*enqueue|enqueue.*TestScale"):
        run()
    assert context.error_recorder.num_errors() == 1


@pytest.mark.parametrize("is_repeated", [False, True])
@pytest.mark.parametrize("is_alone", [False, True])
def test_a_kernel_that_fails_is_named(is_repeated: bool, is_alone: bool) -> None:
    index = helper.make_node("Cast", ["y"], ["i"], to=TensorProto.INT64)
    nodes = [index, helper.make_node("GatherElements", ["x", "i"], ["z"], name="pick")]
    if not is_alone:
        nodes[1:] = [helper.make_node("Relu", ["x"], ["a"]), nodes[1]]
    context, arrays = start(make_engine(nodes, "xy"), x=1, y=0)
    run = context.bind_run() if is_repeated else context.execute_async_v3
    arrays["y"][...] = 7
    with pytest.raises(dt.DovetailError, match="pick"):
        run()
    assert context.error_recorder.num_errors() == 1
    arrays["y"][...] = 1
    run()
    np.testing.assert_array_equal(arrays["z"], 1)


def test_an_interrupt_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    context, _ = start(failing_engine(), x=1)
    run = context.bind_run()

    def interrupt(self: Any, *args: Any) -> None:
        raise KeyboardInterrupt

    step = context._runner.steps[0]
    monkeypatch.setattr(step, "_enqueue", interrupt)
    with pytest.raises(KeyboardInterrupt):
        context.bind_run()()
    run()  # bound before, it has the plugin's own
