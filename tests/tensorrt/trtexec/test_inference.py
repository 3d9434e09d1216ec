"""Runs on a device that does nothing before somebody waits: copies, streams and times."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper

import dovetail
from dovetail.testing import host_device
from dovetail_tensorrt.trtexec.inference import Lane, RunTimes, make_inputs, measure, profile
from dovetail_tensorrt.trtexec.summary import describe_times, describe_trace
from dovetail_tensorrt.trtexec.words import parse_words


def make_model() -> Any:
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "x"], ["y"], name="sum")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


def test_a_device_gets_its_inputs_and_gives_its_outputs_back() -> None:
    options = parse_words(["--shapes=x:3x4", "--iterations=4", "--duration=0", "--warmUp=0", "--includeDataTransfers"])
    with host_device() as device:
        engine = dovetail.compile(make_model(), providers=[device.id, "cpu"], shapes={"x": ((1, 4), (2, 4), (8, 4))})
        assert engine.device_names == [device.id]
        inputs = make_inputs(engine, options)
        lane = Lane(engine, inputs, options)
        assert lane.is_bound
        runs = measure([lane], options)
        np.testing.assert_array_equal(lane.read_outputs()["y"], inputs["x"] * 2)
        count, *rows = profile(lane, options)
        assert count == {"count": 4}
        assert rows
        engine.close()
    assert len(runs) == 4
    assert all(run.begin < run.copied_in <= run.enqueued <= run.computed < run.copied_out for run in runs)


def test_numbers_of_a_summary() -> None:
    runs = [
        RunTimes(i * 10**7, i * 10**7 + 10**6, i * 10**7 + 2 * 10**6, i * 10**7 + 5 * 10**6, i * 10**7 + 6 * 10**6)
        for i in range(10)
    ]
    lines, warnings = describe_times(runs, [90.0], 2)
    assert lines[0] == f"Throughput: {10 / 0.096:.6g} qps"
    assert lines[1] == "Latency: min = 6 ms, max = 6 ms, mean = 6 ms, median = 6 ms, percentile(90%) = 6 ms"
    assert lines[2].startswith("Enqueue Time: min = 1 ms")
    assert lines[3].startswith("H2D Latency: min = 1 ms")
    assert lines[4].startswith("GPU Compute Time: min = 4 ms")
    assert lines[5].startswith("D2H Latency: min = 1 ms")
    assert lines[6:] == ["Total Host Walltime: 0.096 s", "Total GPU Compute Time: 0.04 s"]
    assert len(warnings) == 1
    assert (
        describe_trace(runs, 5)[1:]
        == [
            "Average on 5 runs - GPU latency: 4 ms - Host latency: 6 ms (enqueue 1 ms)",
        ]
        * 2
    )
