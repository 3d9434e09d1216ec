"""Captured graphs: what is captured, when, and when it is captured again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import dovetail as dt
from dovetail.testing import host_device
from tests.support.device_models import X, build, chain, expected, make_model


def test_first_run_second_capture_then_replays() -> None:
    with host_device() as device:
        engine = build(chain())
        wanted = expected(chain(), X)
        seen = []
        for _ in range(4):
            device.statistics.reset()
            np.testing.assert_allclose(engine(X), wanted, rtol=1e-6)
            seen.append((device.statistics.launches, device.statistics.captures, device.statistics.replays))
        assert seen == [(4, 0, 0), (4, 1, 1), (0, 0, 1), (0, 0, 1)]


def test_a_provider_says_how_many_runs_come_first() -> None:
    with host_device() as device:
        device.num_runs_before_capture = 3
        engine = build(chain())
        seen = []
        for _ in range(5):
            device.statistics.reset()
            np.testing.assert_allclose(engine(X), expected(chain(), X), rtol=1e-6)
            seen.append((device.statistics.launches, device.statistics.captures, device.statistics.replays))
        assert seen == [(4, 0, 0)] * 3 + [(4, 1, 1), (0, 0, 1)]


def test_a_replay_reads_new_inputs() -> None:
    with host_device():
        engine = build(chain())
        for seed in range(5):
            x = np.random.default_rng(seed).standard_normal((3, 8)).astype(np.float32)
            np.testing.assert_allclose(engine(x), expected(chain(), x), rtol=1e-6)


def test_shapes_that_come_back_are_replayed() -> None:
    with host_device() as device:
        engine = build(chain())
        for rows in (3, 3, 3, 5, 5, 5, 3, 3):
            x = np.resize(X, (rows, 8))
            np.testing.assert_allclose(engine(x), expected(chain(), x), rtol=1e-6)
        assert (device.statistics.captures, device.statistics.replays) == (2, 6)


def test_other_addresses_are_captured_again() -> None:
    with host_device() as device:
        engine = build(chain())
        one, two = device.to_device(X), device.to_device(X * 2)
        for given, x in ((one, X), (one, X), (one, X), (two, X * 2), (two, X * 2), (one, X)):
            np.testing.assert_allclose(engine(given), expected(chain(), x), rtol=1e-6)
        assert (device.statistics.captures, device.statistics.replays) == (2, 4)


def test_two_buffers_in_turn_are_both_replayed() -> None:
    with host_device() as device:
        context = build(chain()).create_execution_context()
        pairs = [(device.to_device(X * scale), device.empty(X.shape, np.float32), X * scale) for scale in (1, 2)]
        for number in range(8):
            source, target, x = pairs[number % 2]
            context.run([source], {"y": target})
            np.testing.assert_allclose(device.to_host(target), expected(chain(), x), rtol=1e-6)
        assert (device.statistics.captures, device.statistics.replays) == (2, 6)


@pytest.mark.parametrize("can_update", [True, False])
def test_ever_new_buffers_keep_few_graphs(can_update: bool) -> None:
    with host_device(can_update=can_update) as device:
        context = build(chain()).create_execution_context()
        target, kept = device.empty(X.shape, np.float32), []
        for number in range(40):
            kept.append(device.to_device(X * number))
            for _ in range(2):
                context.run([kept[-1]], {"y": target})
            np.testing.assert_allclose(device.to_host(target), expected(chain(), X * number), rtol=1e-5)
        assert len(device.graphs) == 40
        assert sum(not graph.is_closed for graph in device.graphs) <= 8
        assert device.statistics.updates == (32 if can_update else 0)
        context.close()
        assert all(graph.is_closed for graph in device.graphs)


def test_a_graph_that_cannot_be_updated_is_named() -> None:
    with host_device() as device:
        context = build(chain()).create_execution_context()
        target, kept = device.empty(X.shape, np.float32), [device.to_device(X * number) for number in range(9)]
        for array in kept[:8]:
            for _ in range(2):
                context.run([array], {"y": target})
        device.options = replace(device.options, raises_in=["update_graph"])
        context.run([kept[8]], {"y": target})
        with pytest.raises(dt.ProviderError, match=r"'host_device'.*update_graph.*told to fail"):
            context.run([kept[8]], {"y": target})
        device.options = replace(device.options, raises_in=[])


def test_compiled_partitions_are_captured() -> None:
    with host_device(compiles=True) as device:
        engine = build(chain())
        for seed in range(4):
            x = np.random.default_rng(seed).standard_normal((3, 8)).astype(np.float32)
            np.testing.assert_allclose(engine(x), expected(chain(), x), rtol=1e-6)
        assert (device.statistics.captures, device.statistics.replays) == (1, 3)


def test_steps_of_the_host_part_captures() -> None:
    with host_device(ops=["MatMul", "Relu", "Add"]) as device:
        engine = build(chain())
        for _ in range(3):
            np.testing.assert_allclose(engine(X), expected(chain(), X), rtol=1e-6)
        assert (device.statistics.captures, device.statistics.replays) == (2, 4)


@pytest.mark.parametrize("where", ["device", "runtime", "engine"])
def test_capture_can_be_switched_off(where: str, tmp_path: Path) -> None:
    with host_device(can_capture=where != "device") as device:
        build(chain()).save(tmp_path / "plan")
        runtime = dt.Runtime()
        runtime.capture_graphs = where != "runtime"
        engine = runtime.load_engine(tmp_path / "plan")
        if where == "engine":
            engine.capture_graphs = False
        for _ in range(3):
            np.testing.assert_allclose(engine(X), expected(chain(), X), rtol=1e-6)
        assert (device.statistics.captures, device.statistics.launches) == (0, 12)


def test_values_whose_shape_the_run_tells_are_not_captured() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("NonZero", ["a"], ["i"]),
        helper.make_node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Neg", ["f"], ["y"]),
    ]
    model = make_model(nodes, {"x": ["n", 8]}, {"y": None})
    with host_device() as device:
        engine = build(model)
        for x in (X, -X, X, np.zeros_like(X)):
            np.testing.assert_array_equal(engine(x), expected(model, x))
        assert device.statistics.captures == 1  # Relu alone
        assert device.statistics.launches == 4 * 3 + 2


def test_what_the_host_decides_in_every_run_is_not_captured() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Trilu", ["a", "k"], ["y"])]
    model = make_model(nodes, {"x": ["n", 8], "k": []}, {"y": ["n", 8]}, types={"k": TensorProto.INT64})
    with host_device() as device:
        engine = build(model)
        for k in (0, 1, -1, 2):
            shift = np.array(k, np.int64)
            np.testing.assert_array_equal(engine(X, shift), np.triu(np.maximum(X, 0), k))
        assert device.statistics.launches == 4 + 2


def test_graphs_are_given_back() -> None:
    with host_device() as device:
        engine = build(chain())
        for _ in range(3):
            engine(X)
        (graph,) = device.graphs
        assert not graph.is_closed
        engine.close()
        assert graph.is_closed
        assert not device._streams.streams


def test_profiled_runs_are_not_captured() -> None:
    with host_device() as device:
        engine = build(chain())
        context = engine.create_execution_context()
        context.profiler = dt.LayerTimes()
        for _ in range(3):
            context.run([X])
        assert device.statistics.captures == 0


def test_what_splits_a_graph_says_why() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="first"),
        helper.make_node("Det", ["a"], ["b"], name="middle"),
        helper.make_node("Add", ["a", "b"], ["y"], name="last"),
    ]
    model = make_model(nodes, {"x": [3, 3]}, {"y": [3, 3]})
    x = np.random.default_rng(2).standard_normal((3, 3)).astype(np.float32)
    with host_device(ops=["Relu", "Add"]):
        engine = build(model)
        context = engine.create_execution_context()
        assert context.uncaptured_steps == []
        context.run([x])
        found = {each.step: each.reason for each in context.uncaptured_steps}
        assert found["middle"] == "provider 'cpu' captures nothing"
        assert "first" not in found
        assert "last" not in found
        assert all("copy" in reason for step, reason in found.items() if step != "middle")
        engine.capture_graphs = False
        launched = engine.create_execution_context()
        launched.run([x])
        assert launched.uncaptured_steps == []


def test_nothing_is_told_where_everything_is_captured() -> None:
    with host_device():
        context = build(chain()).create_execution_context()
        context.run([X])
        assert context.uncaptured_steps == []


def test_a_recording_that_is_spoiled_is_made_again() -> None:
    with host_device() as device:
        context = build(chain()).create_execution_context()
        context.run([X])
        device.options = replace(device.options, raises_in=["end_capture"])
        np.testing.assert_allclose(context.run([X])[0], expected(chain(), X), rtol=1e-6)
        (spoiled,) = context.uncaptured_steps
        assert "spoiled" in spoiled.reason
        assert "told to fail" in spoiled.reason
        device.options = replace(device.options, raises_in=[])
        for _ in range(2):
            np.testing.assert_allclose(context.run([X])[0], expected(chain(), X), rtol=1e-6)
        assert device.statistics.replays == 2


def test_a_recording_that_always_fails_is_the_failure_of_the_run() -> None:
    with host_device() as device:
        context = build(chain()).create_execution_context()
        device.options = replace(device.options, raises_in=["end_capture"])
        for _ in range(1 + 8):
            context.run([X])
        assert len(context.uncaptured_steps) == 1
        with pytest.raises(dt.ProviderError, match=r"'host_device'.*end_capture.*told to fail"):
            context.run([X])
        device.options = replace(device.options, raises_in=[])
        np.testing.assert_allclose(context.run([X])[0], expected(chain(), X), rtol=1e-6)
