"""Programs that are one partition: after the first run the provider makes the results from the inputs at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import dovetail as dt


def make_engine(nodes: list[Any], inputs: dict[str, int], outputs: list[str]) -> dt.Engine:
    ports = [helper.make_tensor_value_info(name, kind, [None]) for name, kind in inputs.items()]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    opsets = [helper.make_opsetid("", 18)]
    model = helper.make_model(helper.make_graph(nodes, "g", ports, results), opset_imports=opsets, ir_version=10)
    return dt.compile(model, providers=["onnxruntime"])


FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64


def test_an_input_that_nobody_reads_is_left_out() -> None:
    nodes = [helper.make_node("Sub", ["x", "y"], ["d"]), helper.make_node("Neg", ["d"], ["e"])]
    engine = make_engine(nodes, {"x": FLOAT, "rate": INT, "y": FLOAT}, ["d", "e"])
    for number in range(1, 4):
        x, y = np.full(3, number, np.float32), np.ones(3, np.float32)
        results = engine(y=y, x=x, rate=np.zeros(1, np.int64))
        np.testing.assert_array_equal(results["d"], x - y)
        np.testing.assert_array_equal(results["e"], y - x)


def test_one_input_of_several_is_read() -> None:
    engine = make_engine([helper.make_node("Neg", ["y"], ["z"])], {"x": FLOAT, "y": FLOAT}, ["z"])
    for number in range(3):
        y = np.full(2, number, np.float32)
        np.testing.assert_array_equal(engine(np.ones(2, np.float32), y), -y)


def test_results_of_earlier_runs_stay_as_they_are() -> None:
    engine = make_engine([helper.make_node("Neg", ["x"], ["z"])], {"x": FLOAT}, ["z"])
    kept = [engine(np.full(4, number, np.float32)) for number in range(5)]
    assert [result.tolist() for result in kept] == [[-number] * 4 for number in range(5)]


def test_new_shapes_and_unusual_arrays_go_the_long_way() -> None:
    engine = make_engine([helper.make_node("Neg", ["x"], ["z"])], {"x": FLOAT}, ["z"])
    for x in (np.ones(3, np.float32), np.ones(3, np.float32), np.ones(5, np.float32), np.ones(8, np.float32)[::2]):
        np.testing.assert_array_equal(engine(x), -x)
    with pytest.raises(dt.InputError, match="wrong type"):
        engine(np.ones(4))
    with pytest.raises(dt.InputError, match="wrong number of inputs"):
        engine()


def test_a_failure_is_named_and_reported_and_the_next_run_is_right() -> None:
    nodes = [helper.make_node("Gather", ["x", "i"], ["z"])]
    engine = make_engine(nodes, {"x": FLOAT, "i": INT}, ["z"])
    context = engine.create_execution_context()
    x, good, bad = np.arange(4, dtype=np.float32), np.array([1]), np.array([9])
    for _ in range(2):
        assert context.run([x, good])[0].tolist() == [1]
        with pytest.raises(dt.ProviderError, match=r"step .*it failed"):
            context.run([x, bad])
    assert context.error_recorder.num_errors() == 2


@pytest.mark.parametrize("providers", [["onnxruntime"], ["cpu"]])
def test_calls_like_the_one_before_and_calls_unlike_it(providers: list[str]) -> None:
    nodes = [helper.make_node("Sub", ["x", "y"], ["z"])]
    ports = [helper.make_tensor_value_info(name, FLOAT, [None]) for name in "xy"]
    result = helper.make_tensor_value_info("z", FLOAT, None)
    graph = helper.make_graph(nodes, "g", ports, [result])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    engine = dt.compile(model, providers=providers)
    x, y = np.full(4, 5, np.float32), np.ones(4, np.float32)
    fixed = x.copy()
    fixed.setflags(write=False)
    wide = np.full(8, 5, np.float32)[::2]
    for _ in range(3):
        for arrays, named in (
            ((x, y), {}),
            ((), {"y": y, "x": x}),
            ((x,), {"y": y}),
            ((fixed, y), {}),
            ((wide, y), {}),
            ((x.tolist(), y), {}),
            ((x.astype(">f4").astype("f4"), y), {}),
        ):
            np.testing.assert_array_equal(engine(*arrays, **named), 4)
        for arrays, named, what in (
            ((x,), {}, "wrong number of inputs"),
            ((x, y, y), {}, "wrong number of inputs"),
            ((x, y), {"y": y}, "unknown or repeated"),
            ((x,), {"w": y}, "unknown or repeated"),
            ((), {"x": x, "w": y}, "unknown or repeated"),
            ((x.astype(">f4"), y), {}, "other byte order"),
            ((x.astype("f8"), y), {}, "wrong type"),
            ((None, y), {}, "not an array"),
        ):
            with pytest.raises(dt.InputError, match=what):
                engine(*arrays, **named)
