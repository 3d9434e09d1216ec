"""How engines are called: arrays in order, by name and in one mapping; results of one output and of several."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import dovetail as dt

A = np.arange(6, dtype=np.float32).reshape(2, 3)
B = np.full((2, 3), 2.0, np.float32)


def _two_outputs() -> dt.Engine:
    network = dt.Builder().create_network()
    network.name = "pair"
    a = network.add_input("a", dt.float32, (2, 3))
    b = network.add_input("b", dt.float32, (2, 3))
    for name, operation in (("sum", dt.ElementWiseOperation.SUM), ("product", dt.ElementWiseOperation.PROD)):
        output = network.add_elementwise(a, b, operation).get_output(0)
        output.name = name
        network.mark_output(output)
    return dt.compile(network)


def _one_output(shape: tuple[int, ...] = (-1, 3)) -> dt.Engine:
    network = dt.Builder().create_network()
    x = network.add_input("x", dt.float32, shape)
    y = network.add_activation(x, dt.ActivationType.RELU).get_output(0)
    y.name = "y"
    network.mark_output(y)
    return dt.compile(network)


@pytest.mark.parametrize(
    ("arrays", "named"),
    [((A, B), {}), ((A,), {"b": B}), ((), {"b": B, "a": A}), (({"b": B, "a": A},), {}), (({"b": B},), {"a": A})],
)
def test_inputs_are_taken_in_order_by_name_and_in_one_mapping(arrays: Any, named: Any) -> None:
    with _two_outputs() as engine:
        assert (engine.input_names, engine.output_names) == (["a", "b"], ["sum", "product"])
        results = engine(*arrays, **named)
        assert list(results) == ["sum", "product"]
        np.testing.assert_array_equal(results["sum"], A + B)
        np.testing.assert_array_equal(engine.run(*arrays, **named)["product"], A * B)


def test_a_mapping_is_no_input_of_one_array() -> None:
    with _one_output() as engine:
        np.testing.assert_array_equal(engine({"x": -A}), np.zeros_like(A))
        assert list(engine.run(A)) == ["y"]


@pytest.mark.parametrize(
    ("arrays", "named", "message"),
    [
        (({"a": A},), {}, r"nothing was given for input\(s\) b; expected a, b"),
        (({"a": A, "b": B, "c": A},), {}, r"unknown or repeated input\(s\) c; expected inputs a, b"),
        (({"a": A, "b": B},), {"b": B}, r"inputs: input\(s\) b given twice"),
        (({"a": A, 1: B},), {}, r"unknown or repeated input\(s\) 1"),
        (({},), {}, "wrong number of inputs"),
    ],
)
def test_a_mapping_that_does_not_fit_is_told(arrays: Any, named: Any, message: str) -> None:
    with _two_outputs() as engine, pytest.raises(dt.InputError, match=message):
        engine(*arrays, **named)


def test_a_mapping_is_the_value_of_an_engine_that_takes_a_map() -> None:
    value = onnx.ValueInfoProto(name="features")
    value.type.map_type.key_type = onnx.TensorProto.STRING
    value.type.map_type.value_type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    made = helper.make_node("DictVectorizer", ["features"], ["y"], domain="ai.onnx.ml", string_vocabulary=["a", "b"])
    output = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [None, None])
    graph = helper.make_graph([made], "g", [value], [output])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 3)]
    with dt.compile(helper.make_model(graph, opset_imports=opsets, ir_version=10)) as engine:
        assert engine({"b": 2.0}).reshape(-1).tolist() == [0.0, 2.0]


def test_some_outputs_are_asked_for() -> None:
    with _two_outputs() as engine:
        assert list(engine.run(A, B, output_names=["product"])) == ["product"]
        assert list(engine.run(A, B, output_names=("product", "sum"))) == ["product", "sum"]
        with pytest.raises(dt.UsageError, match="there is no output 'difference'; expected sum, product"):
            engine.run(A, B, output_names=["difference"])
        with pytest.raises(dt.UsageError, match=r"output_names: this is one name; expected a list, such as \['sum'\]"):
            engine.run(A, B, output_names="sum")
        assert list(asyncio.run(engine.run_async(A, B, output_names=["product"]))) == ["product"]


def test_runs_are_awaited_together() -> None:
    async def gather(engine: dt.Engine) -> list[Any]:
        return await asyncio.gather(*(engine.run_async(np.full((2, 3), n, np.float32)) for n in range(12)))

    with _one_output() as engine:
        assert [int(result[0, 0]) for result in asyncio.run(gather(engine))] == list(range(12))
        with pytest.raises(dt.InputError, match="expected float32, got float64"):
            asyncio.run(engine.run_async(A.astype(np.float64)))


def test_a_benchmark_counts_runs() -> None:
    with _one_output() as engine:
        result = engine.benchmark(A, warmup_s=0, iterations=20)
        assert (result.iterations, dict(result.shapes)) == (20, {"x": (2, 3)})
        assert 0 < result.latency_ms["min"] <= result.median_ms <= result.latency_ms["max"]
        assert json.loads(json.dumps(result.to_dict()))["iterations"] == 20
        with pytest.raises(dt.UsageError, match="iterations: nothing would run"):
            engine.benchmark(A, iterations=0)
        assert "20 runs" in str(result)
        assert engine.benchmark({"x": A}, warmup_s=0, iterations=1).iterations == 1
        with pytest.raises(dt.InputError, match=r"input 'x': nothing can be made up for it[^\n]*\n.*benchmark\(x\)"):
            engine.benchmark()


def test_a_benchmark_makes_up_what_has_a_shape() -> None:
    with _one_output((4, 3)) as engine:
        assert dict(engine.benchmark(warmup_s=0, iterations=2).shapes) == {"x": (4, 3)}
    network = dt.Builder().create_network()
    x = network.add_input("x", dt.int32, (-1,))
    network.mark_output(network.add_identity(x).get_output(0))
    with dt.compile(network, shapes={"x": ((1,), (5,), (8,))}) as engine:
        assert dict(engine.benchmark(warmup_s=0, iterations=2).shapes) == {"x": (5,)}


def test_a_report_is_data() -> None:
    with _two_outputs() as engine:
        report = engine.report()
        data = json.loads(json.dumps(report.to_dict()))
    assert [tensor["name"] for tensor in data["inputs"] + data["outputs"]] == ["a", "b", "sum", "product"]
    assert data["steps"]
    assert "a: float32[2, 3]" in str(report)
    assert str(report).startswith("Engine 'pair': ")


def test_a_context_runs_over_arrays_by_name() -> None:
    with _two_outputs() as engine:
        context = engine.create_execution_context()
        total, product = context.run({"b": B, "a": A})
        np.testing.assert_array_equal(total, A + B)
        np.testing.assert_array_equal(product, A * B)
        with pytest.raises(dt.InputError, match="nothing was given for input"):
            context.run({"a": A})
