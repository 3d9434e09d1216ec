"""Bound runs: the same results and errors in every run, over any memory and shapes, and nothing of callers kept."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import dovetail as dt
from dovetail.plugin import address_of
from dovetail.plugin.quick import layer
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
    for number in range(2, 5):
        arrays["x"][...], arrays["z"][...] = number, -1
        context.execute_async_v3(0)
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
    for number, zeros in ((2, 1), (3, 4), (5, 0)):
        arrays["x"][...] = number
        arrays["x"].reshape(-1)[:zeros] = 0
        context.execute_async_v3(0)
        np.testing.assert_array_equal(arrays["z"], arrays["x"] + number * (6 - zeros))


def test_a_bound_run_keeps_no_array_of_the_caller_alive() -> None:
    engine = make_engine(GRAPHS["kernels around a layer"][0])
    gone: list[Any] = []
    for number in range(3):
        x = np.full(SHAPE, number, np.float32)
        result = engine(x)
        np.testing.assert_array_equal(result, 4 * x)
        gone += [weakref.ref(x), weakref.ref(result)]
    del x, result
    assert [ref() is None for ref in gone] == [True] * 6


def test_large_arrays_of_the_caller_are_not_kept_by_partitions() -> None:
    shape = (64, 1024)
    nodes = [
        helper.make_node("Add", ["x", "x"], ["a"]),
        plugin_node("repeat_doubled", ["a"], "b"),
        helper.make_node("Relu", ["b"], ["z"]),
    ]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xz"]
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("trt.plugins", 1)]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:])
    engine = dt.compile(helper.make_model(graph, opset_imports=opsets, ir_version=10), providers=["onnxruntime", "cpu"])
    assert [step.kind for step in engine.manifest.programs[0].steps] == ["partition", "plugin", "partition"]
    x = np.ones(shape, np.float32)
    gone = weakref.ref(x)
    np.testing.assert_array_equal(engine(x), 4 * x)
    del x
    assert gone() is None


@pytest.mark.parametrize("count", [8, 40])
def test_shapes_that_alternate_give_the_same_as_an_engine_of_their_own(count: int) -> None:
    nodes = [
        helper.make_node("Add", ["x", "x"], ["a"]),
        plugin_node("repeat_doubled", ["a"], "b"),
        helper.make_node("Relu", ["b"], ["z"]),
    ]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3]) for name in "xz"]
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("trt.plugins", 1)]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:])
    engine = dt.compile(helper.make_model(graph, opset_imports=opsets, ir_version=10), providers=["cpu"])
    for _ in range(3):
        for rows in range(1, count + 1):
            x = np.full((rows, 3), rows, np.float32)
            np.testing.assert_array_equal(engine(x), 4 * x)


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


def test_a_plugin_that_fails_is_named_and_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    context, _ = start(failing_engine(), x=1)
    monkeypatch.setattr(Failing, "is_failing", True)
    with pytest.raises(dt.PluginError, match=r"TestScale.*enqueue|enqueue.*TestScale"):
        context.execute_async_v3(0)
    assert context.error_recorder.num_errors() == 1


@pytest.mark.parametrize("is_alone", [False, True])
def test_a_kernel_that_fails_is_named(is_alone: bool) -> None:
    index = helper.make_node("Cast", ["y"], ["i"], to=TensorProto.INT64)
    nodes = [index, helper.make_node("GatherElements", ["x", "i"], ["z"], name="pick")]
    if not is_alone:
        nodes[1:] = [helper.make_node("Relu", ["x"], ["a"]), nodes[1]]
    context, arrays = start(make_engine(nodes, "xy"), x=1, y=0)
    arrays["y"][...] = 7
    with pytest.raises(dt.DovetailError, match="pick"):
        context.execute_async_v3(0)
    assert context.error_recorder.num_errors() == 1
    arrays["y"][...] = 1
    context.execute_async_v3(0)
    np.testing.assert_array_equal(arrays["z"], 1)


def test_an_interrupt_passes_and_the_context_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    context, arrays = start(failing_engine(), x=1)

    def interrupt(self: Any, *args: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Failing, "enqueue", interrupt)
    with pytest.raises(KeyboardInterrupt):
        context.execute_async_v3(0)
    monkeypatch.undo()
    arrays["z"][...] = -1
    context.execute_async_v3(0)
    np.testing.assert_array_equal(arrays["z"], 2)
