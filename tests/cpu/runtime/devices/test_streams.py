"""Order on devices: where the host waits, and where it does not."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import numpy as np
import pytest
from onnx import helper

import dovetail as dt
from dovetail.errors import ProviderError
from dovetail.testing import HostStream, host_device
from tests.support.device_models import X, build, chain, expected, make_model, steps_of


def test_work_waits_until_somebody_waits_for_it() -> None:
    with host_device() as device:
        stream = device.create_stream()
        assert stream is not None
        done: list[str] = []
        stream.submit("a", lambda: done.append("a"))
        event = stream.record()
        stream.submit("b", lambda: done.append("b"))
        assert (done, event.is_done(), stream.pending) == ([], False, 2)
        event.synchronize()
        assert (done, event.is_done(), stream.pending) == (["a"], True, 1)
        stream.synchronize()
        assert done == ["a", "b"]
        stream.close()
        with pytest.raises(ProviderError, match="closed"):
            stream.submit("c", lambda: None)


def test_a_stream_waits_for_an_event_of_another() -> None:
    with host_device() as device:
        first, second = device.create_stream(), device.create_stream()
        assert first is not None
        assert second is not None
        assert first.handle != second.handle
        done: list[str] = []
        first.submit("a", lambda: done.append("a"))
        second.wait(first.record())
        second.submit("b", lambda: done.append("b"))
        second.synchronize()
        assert done == ["a", "b"]


def test_who_waits_in_the_middle_of_work_lets_nothing_overtake_it() -> None:
    """The garbage collector does, to give memory back."""
    with host_device() as device:
        stream = device.create_stream()
        assert stream is not None
        done: list[str] = []

        def wait_and_note() -> None:
            device.synchronize()
            stream.synchronize()
            done.append("a")

        stream.submit("a", wait_and_note)
        stream.submit("b", lambda: done.append("b"))
        stream.synchronize()
        assert done == ["a", "b"]


def test_work_after_a_failure_is_dropped() -> None:
    with host_device() as device:
        stream = device.create_stream()
        assert stream is not None
        done: list[int] = []
        stream.submit("bad", lambda: done.append(1 // 0))
        stream.submit("late", lambda: done.append(1))
        with pytest.raises(ZeroDivisionError):
            device.synchronize()
        device.synchronize()
        assert not done


def test_the_host_waits_once_at_the_end_and_never_between_steps_of_a_device() -> None:
    with host_device(can_capture=False) as device:
        engine = build(chain())
        engine(X)
        device.statistics.reset()
        engine(X)
        assert (device.statistics.launches, device.statistics.waits) == (4, 1)


def test_the_host_waits_before_it_reads() -> None:
    with host_device(ops=["MatMul", "Relu", "Add"], can_capture=False) as device:
        engine = build(chain())
        engine(X)
        device.statistics.reset()
        np.testing.assert_allclose(engine(X), expected(chain(), X), rtol=1e-6)
        assert device.statistics.waits == 2  # before Softmax, and at the end


def test_waiting_for_the_last_copy_is_waiting_for_those_before() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Neg", ["x"], ["b"]),
        helper.make_node("Sin", ["b"], ["c"]),
        helper.make_node("Cos", ["a"], ["d"]),
        helper.make_node("Mul", ["c", "d"], ["y"]),
    ]
    model = make_model(nodes, {"x": ["n", 8]}, {"y": ["n", 8]})
    with host_device(ops=["Relu", "Neg"]) as device:
        engine = build(model)
        engine(X)
        device.statistics.reset()
        np.testing.assert_allclose(engine(X), expected(model, X), rtol=1e-6)
        assert device.statistics.waits <= 3
        assert device.statistics.copies_to_host == 3  # two values that the host reads, and the result


def test_a_missing_wait_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the other tests rely on: results are late unless the runtime waits."""
    from dovetail.runtime.steps.copy import CopyStep

    monkeypatch.setattr(CopyStep, "wait", lambda self: None)
    with host_device(ops=["MatMul", "Relu", "Add"]):
        engine = build(chain())
        # Memory that nothing was written to may hold what an earlier run left there, but not for several inputs.
        assert not all(np.allclose(engine(times * X), expected(chain(), times * X)) for times in (1, 2, 3))


def test_a_device_without_streams() -> None:
    with host_device(has_streams=False, ops=["MatMul", "Relu", "Add"]) as device:
        engine = build(chain())
        device.statistics.reset()
        for _ in range(3):
            np.testing.assert_allclose(engine(X), expected(chain(), X), rtol=1e-6)
        assert (device.statistics.streams, device.statistics.waits, device.statistics.captures) == (0, 0, 0)


def test_every_context_has_a_stream_of_its_own() -> None:
    with host_device() as device:
        engine = build(chain(), profiles=[{"x": (3, 8)}, {"x": (4, 8)}])
        with engine.create_execution_context() as one, engine.create_execution_context():
            assert device.statistics.streams == 2
            one.set_optimization_profile_async(1)
            one.run([np.resize(X, (4, 8))])
            assert device.statistics.streams == 2


def test_contexts_in_threads() -> None:
    failures: list[str] = []
    with host_device(ops=["MatMul", "Relu", "Add"]):
        engine = build(chain())

        def work(seed: int) -> None:
            x = np.random.default_rng(seed).standard_normal((3, 8)).astype(np.float32)
            wanted = expected(chain(), x)
            for _ in range(10):
                if not np.allclose(engine(x), wanted, rtol=1e-5):
                    failures.append(f"seed {seed}")

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures


def test_the_host_does_not_write_over_what_a_copy_still_reads() -> None:
    """A chain of the host between device steps, with memory that the plan would use again at once."""
    nodes: list[Any] = []
    previous = "x"
    for index in range(6):
        nodes += [
            helper.make_node("Sin", [previous], [f"s{index}"]),
            helper.make_node("Cos", [f"s{index}"], [f"c{index}"]),
            helper.make_node("Neg", [f"c{index}"], [f"n{index}"]),
        ]
        previous = f"c{index}"
    nodes.append(helper.make_node("Sum", [f"n{index}" for index in range(6)], ["y"]))
    model = make_model(nodes, {"x": ["n", 8]}, {"y": ["n", 8]})
    with host_device(ops=["Neg", "Sum"]):
        for shapes in (None, {"x": (3, 8)}):
            engine = build(model, shapes=shapes)
            for _ in range(3):
                np.testing.assert_allclose(engine(X), expected(model, X), rtol=1e-5)


# two devices


@pytest.mark.parametrize("peers", [(), ("first",)], ids=["by way of the host", "at once"])
def test_values_go_from_one_device_to_another(peers: tuple[str, ...]) -> None:
    with (
        host_device(name="first", ops=["MatMul", "Softmax"]) as first,
        host_device(name="second", ops=["Relu", "Add"], peers=peers) as second,
    ):
        for shapes in (None, {"x": (3, 8)}):
            engine = build(chain(), "first", "second", shapes=shapes)
            copies = [s.name for s in engine.manifest.programs[0].steps if s.kind == "copy"]
            assert ("Copy a first -> second" in copies) == bool(peers)
            for _ in range(4):
                np.testing.assert_allclose(engine(X), expected(chain(), X), rtol=1e-6)
        assert bool(second.statistics.copies_inside) == bool(peers)
        assert {step.partition("@")[2] for step in steps_of(engine)} == {"first", "second"}
        assert first.statistics.launches > 0


def test_a_copy_between_devices_waits_for_the_other_stream() -> None:
    calls: list[str] = []

    class Watched(HostStream):
        def wait(self, event: Any) -> None:
            calls.append("wait")
            super().wait(event)

    with (
        host_device(name="first", ops=["MatMul"]),
        host_device(name="second", ops=["Relu", "Softmax", "Add"], peers=("first",)) as second,
    ):
        second.create_stream = lambda: Watched(second._streams)  # type: ignore[method-assign]
        engine = build(chain(), "first", "second")
        np.testing.assert_allclose(engine(X), expected(chain(), X), rtol=1e-6)
    # MatMul's result, the input that Add reads, and the output, whose copy the queue of its target waits for.
    assert len(calls) == 3


def test_a_run_that_fails_leaves_nothing_under_way() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Gather", ["a", "i"], ["b"]),
        helper.make_node("Neg", ["b"], ["y"]),
    ]
    types = {"i": 7}
    model = make_model(nodes, {"x": ["n", 8], "i": ["m"]}, {"y": ["m", 8]}, types=types)
    with host_device(ops=["Relu", "Neg"]) as device:
        engine = build(model)
        good, bad = np.array([0, 2]), np.array([0, 99])
        for _ in range(2):
            with pytest.raises(dt.DovetailError):
                engine(X, bad)
            assert all(stream.pending == 0 for stream in device._streams.streams.values())
            np.testing.assert_array_equal(engine(X, good), -np.maximum(X, 0)[[0, 2]])


def test_a_kernel_that_fails_on_the_device_is_named() -> None:
    nodes = [helper.make_node("Gather", ["x", "i"], ["a"]), helper.make_node("Neg", ["a"], ["y"])]
    model = make_model(nodes, {"x": ["n", 8], "i": ["m"]}, {"y": ["m", 8]}, types={"i": 7})
    with host_device():
        engine = build(model)
        for _ in range(2):
            with pytest.raises(dt.DovetailError):
                engine(X, np.array([99]))
            np.testing.assert_array_equal(engine(X, np.array([1])), -X[[1]])


def test_a_handle_after_other_streams_were_chosen_is_used_again() -> None:
    """The caller's work on the stream comes before the run, whatever was chosen in between."""
    with host_device() as device:
        engine = build(chain())
        context = engine.create_execution_context()
        stream, source = device.create_stream(), device.to_device(np.zeros_like(X))
        assert stream is not None
        target = device.empty(expected(chain(), X).shape, np.float32)
        context.set_input_shape("x", X.shape)
        context.set_tensor_address("x", source.address)
        context.set_tensor_address("y", target.address)
        context.execute_async_v3(stream.handle)
        stream.synchronize()
        context.use_streams({"host_device": 0})
        device.copy(X, source, stream)
        context.execute_async_v3(stream.handle)
        np.testing.assert_allclose(device.to_host(target), expected(chain(), X), rtol=1e-6)


@pytest.mark.parametrize("handle", ["x", 1.5, -1])
def test_a_stream_that_is_no_handle_is_refused(handle: Any) -> None:
    with host_device(), pytest.raises(dt.UsageError, match="execute_async_v3"):
        build(chain()).create_execution_context().execute_async_v3(handle)


@pytest.mark.parametrize("callback", ["close_stream", "close_graph"])
def test_what_fails_while_closing_leaves_nothing_else_open(callback: str) -> None:
    with host_device() as device:
        engine = build(chain())
        contexts = [engine.create_execution_context() for _ in range(3)]
        for context in contexts:
            for _ in range(3):
                context.run([X])
        failures = [1]

        def check(name: str) -> None:
            if name == callback and failures:
                failures.pop()
                raise RuntimeError("once")

        device._streams.check = check
        with contextlib.suppress(dt.ProviderError):
            engine.close()
        assert len(device._streams.streams) <= 1  # the one that could not be closed
        assert device.allocator.statistics.used_bytes == 0
