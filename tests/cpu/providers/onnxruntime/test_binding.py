"""What partitions read and write: arrays that are new in every run, results that belong to the caller."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import dovetail as dt
from dovetail.providers.onnxruntime import binding

ROWS = {"small": 8, "large": 8 * 1024}
"""With 16 columns: below and above what is copied in place of being bound."""


@dt.layer("TestBindingCopy")
def _copy(x: Any) -> Any:
    return x.copy()


def _engine(rows: Any) -> Any:
    """y0 = 2x and y1 = 4x, in partitions around an operator that copies."""
    nodes = [
        helper.make_node("Add", ["x", "x"], ["a"]),
        helper.make_node("TestBindingCopy", ["a"], ["b"], domain="test"),
        helper.make_node("Relu", ["b"], ["y0"]),
        helper.make_node("Add", ["b", "b"], ["y1"]),
    ]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (rows, 16)) for name in ("x", "y0", "y1")]
    graph = helper.make_graph(nodes, "binding", ports[:1], ports[1:])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("test", 1)]
    engine = dt.compile(helper.make_model(graph, opset_imports=opsets, ir_version=8))
    assert [step.kind for step in engine.manifest.programs[0].steps] == ["partition", "plugin", "partition"]
    return engine


def _check(results: Any, x: Any) -> None:
    np.testing.assert_array_equal(results["y0"], 2 * x)
    np.testing.assert_array_equal(results["y1"], 4 * x)


@pytest.mark.parametrize("size", ROWS)
@pytest.mark.parametrize("is_new", [True, False], ids=["new inputs", "the same input"])
def test_results_belong_to_the_caller(size: str, is_new: bool) -> None:
    engine, kept = _engine(ROWS[size]), []
    x = np.zeros((ROWS[size], 16), np.float32)
    for number in range(6):
        x = np.full_like(x, number) if is_new else x
        x[...] = number
        kept.append(engine(x))
    for number, results in enumerate(kept):
        _check(results, np.full_like(x, number))
    addresses = {array.ctypes.data for results in kept for array in results.values()}
    assert len(addresses) == 12


def test_shapes_may_change_with_every_run() -> None:
    engine = _engine("n")
    kept = [(x, engine(x)) for x in (np.full((n, 16), n, np.float32) for n in (1, 3, 3, 3, 1, 2000, 2000, 3, 0, 3, 1))]
    for x, results in kept:
        assert results["y0"].shape == x.shape
        _check(results, x)


def test_runs_by_address_between_runs_with_arrays() -> None:
    engine = _engine(8)
    context = engine.create_execution_context()
    buffers = [np.zeros((8, 16), np.float32) for _ in range(6)]
    kept = []
    for number in range(8):
        x = np.full((8, 16), number, np.float32)
        kept.append((x, dict(zip(("y0", "y1"), context.run([x]), strict=True))))
        half = buffers[:3] if number % 2 else buffers[3:]
        half[0][...] = number
        context.set_tensor_addresses([buffer.ctypes.data for buffer in half])
        context.execute_async_v3(0)
        _check({"y0": half[1], "y1": half[2]}, half[0])
    for x, results in kept:
        _check(results, x)


def test_a_result_that_is_not_what_the_plan_says_comes_back_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model may declare another shape for an output than it has, and ONNX Runtime goes by what it has."""
    run = binding._BoundSession.run

    def run_and_cut(self: Any, inputs: Any, results: list[Any]) -> None:
        is_last = results == [None, None]
        run(self, inputs, results)
        if is_last:
            results[:] = [result[:4] for result in results]

    monkeypatch.setattr(binding._BoundSession, "run", run_and_cut)
    context = _engine(8).create_execution_context()
    for _ in range(3):
        assert [result.shape for result in context.run([np.ones((8, 16), np.float32)])] == [(4, 16), (4, 16)]


def test_run_options_have_the_entry_that_every_run_is_asked_for() -> None:
    """Where it is missing ONNX Runtime's Python part raises and catches an error in every run, which takes 40 us."""
    assert binding._run_options().get_run_config_entry("gpu_graph_id") == "-1"
