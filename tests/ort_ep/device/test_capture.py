"""Graph capture in sessions: warm-up, capture and replay by id, and what keeps a run out of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from tests.ort_ep.device.test_runs import bind
from tests.support import ort_ep
from tests.support.ort_devices import DeviceInOrt, devices_in_ort
from tests.support.ort_ep_models import feeds, plain_model, run_plain, two_part_model
from tests.support.threads import in_threads

pytestmark = [
    pytest.mark.versions,
    pytest.mark.skipif(ort_ep.RUNTIME < (1, 26), reason="ONNX Runtime captures graphs of plugins from 1.26 on"),
]


def run_options(graph_id: int) -> ort.RunOptions:
    options = ort.RunOptions()
    options.add_run_config_entry("gpu_graph_id", str(graph_id))
    return options


class Bound:
    """A binding to memory of the device, whose inputs change and whose place does not."""

    def __init__(self, device: DeviceInOrt, session: ort.InferenceSession, rows: int = 4) -> None:
        self._session = session
        self.inputs = {name: device.value(array) for name, array in feeds(rows).items()}
        self.result = device.empty((rows, 8))
        self.binding = bind(session, self.inputs, {"y": self.result})
        self.rows = rows

    def run(self, graph_id: int | None = None) -> None:
        self._session.run_with_iobinding(self.binding, None if graph_id is None else run_options(graph_id))

    def check(self, seed: int, graph_id: int | None = None) -> None:
        """Run with other contents and look at the result."""
        arrays = {name: array + np.float32(seed) for name, array in feeds(self.rows).items()}
        for name, array in arrays.items():
            self.inputs[name].update_inplace(array)
        self.run(graph_id)
        np.testing.assert_allclose(self.result.numpy(), run_plain(arrays), rtol=1e-5, atol=1e-6)


def release(session: ort.InferenceSession, graph_id: int) -> None:
    """Forget a graph, and that a binding belongs to it, where ONNX Runtime's Python part notes that."""
    if hasattr(session, "release_captured_graph"):
        session.release_captured_graph(graph_id)


def counts(device: DeviceInOrt) -> tuple[int, int, int]:
    """Launches, captures and replays since the last call."""
    found = device.provider.statistics
    told = (found.launches, found.captures, found.replays)
    found.reset()
    return told


@pytest.mark.parametrize("route", ["compile", "kernels"])
def test_the_first_run_captures_and_all_others_replay(device: DeviceInOrt, route: str) -> None:
    session = device.session(plain_model(), graph_capture="1", route=route)
    bound = Bound(device, session)
    bound.check(0)
    assert counts(device) == (9, 1, 1)  # two warm-up runs and one that is captured, of three steps each
    for seed in range(1, 4):
        bound.check(seed)
        assert counts(device) == (0, 0, 1)


@pytest.mark.parametrize("runs", [0, 1, 6])
def test_the_warm_up_is_as_long_as_asked_for(device: DeviceInOrt, runs: int) -> None:
    session = device.session(plain_model(), graph_capture="1", capture_after_runs=str(runs))
    Bound(device, session).check(0)
    assert counts(device) == (3 * (runs + 1), 1, 1)


def test_a_warm_up_that_is_too_long_is_refused(device: DeviceInOrt) -> None:
    with pytest.raises(Exception, match="capture_after_runs"):
        device.session(plain_model(), graph_capture="1", capture_after_runs="7")


def test_each_id_has_a_graph_of_its_own(device: DeviceInOrt) -> None:
    session = device.session(plain_model(), graph_capture="1")
    bindings = {graph_id: Bound(device, session, rows) for graph_id, rows in ((0, 4), (1, 7), (5, 2))}
    for graph_id, bound in bindings.items():
        bound.check(graph_id, graph_id)
        assert counts(device) == (9, 1, 1)
    for seed in range(3):
        for graph_id, bound in bindings.items():
            bound.check(seed, graph_id)
            assert counts(device) == (0, 0, 1)


def test_minus_one_keeps_a_run_out(device: DeviceInOrt) -> None:
    session = device.session(plain_model(), graph_capture="1")
    bound, other = Bound(device, session), Bound(device, session, 9)
    bound.check(0)
    counts(device)
    other.check(1, -1)
    assert counts(device) == (3, 0, 0)
    bound.check(2)  # what the other run used is not what the graph uses
    assert counts(device) == (0, 0, 1)
    inputs = feeds()
    (result,) = session.run(None, inputs, run_options(-1))
    np.testing.assert_allclose(result, run_plain(inputs), rtol=1e-5)


@pytest.mark.skipif(
    not hasattr(ort.InferenceSession, "release_captured_graph"), reason="this ONNX Runtime keeps graphs to the end"
)
def test_a_released_graph_is_captured_again(device: DeviceInOrt) -> None:
    session = device.session(plain_model(), graph_capture="1")
    bound = Bound(device, session)
    before = device.provider.allocator.statistics.used_bytes
    bound.check(0, 3)
    assert device.provider.allocator.statistics.used_bytes > before
    session.release_captured_graph(3)
    counts(device)
    bound.check(1, 3)
    assert counts(device) == (9, 1, 1)


def test_a_session_takes_its_graphs_with_it(device: DeviceInOrt) -> None:
    held = device.empty((1,))
    before = device.provider.allocator.statistics.used_bytes
    session = device.session(plain_model(), graph_capture="1")
    bound = Bound(device, session)
    bound.check(0)
    del session, bound
    assert device.provider.allocator.statistics.used_bytes == before
    assert held.shape() == [1]


def test_threads_capture_for_themselves(device: DeviceInOrt) -> None:
    session = device.session(plain_model(), graph_capture="1")
    bindings = [Bound(device, session, rows) for rows in (3, 4)]

    def work(number: int) -> None:
        for seed in range(10):
            bindings[number].check(seed, number)

    counts(device)
    in_threads(work, 2)
    assert counts(device) == (18, 2, 20)


def test_it_is_off_unless_asked_for(device: DeviceInOrt) -> None:
    session = device.session(plain_model())
    bound = Bound(device, session)
    for seed in range(4):
        bound.check(seed, seed)
    assert counts(device) == (12, 0, 0)


# what cannot be captured


def test_a_back_end_that_cannot_capture() -> None:
    with devices_in_ort(can_capture=False) as (device,), pytest.raises(Exception, match="captures no graphs"):
        device.session(plain_model(), graph_capture="1")


def test_nodes_of_the_cpu_cannot_be_captured(device: DeviceInOrt) -> None:
    with pytest.raises(Exception, match="all the graph nodes have not been assigned"):
        device.session(two_part_model("Sqrt"), fallback=True, exclude="Sqrt", graph_capture="1")


def test_values_on_the_host_cannot_be_captured(device: DeviceInOrt) -> None:
    session = device.session(plain_model(), graph_capture="1")
    with pytest.raises(Exception, match="bind inputs and outputs to memory of the device"):
        session.run(None, feeds())
    bound = Bound(device, session)
    bound.check(1, 2)  # another graph is not affected


def test_shapes_that_only_a_run_tells_cannot_be_captured(device: DeviceInOrt) -> None:
    from onnx import TensorProto, helper

    from tests.ort_ep.device.test_runs import model_of

    model = model_of([helper.make_node("NonZero", ["x"], ["y"])], {"x": (1, [3])}, {"y": (TensorProto.INT64, [1, "M"])})
    session = device.session(model, graph_capture="1")
    x = np.array([1, 0, 2], np.float32)
    binding = bind(session, {"x": device.value(x)}, {"y": device.empty((1, 2), np.int64)})
    with pytest.raises(Exception, match="a shape that only a run tells"):
        session.run_with_iobinding(binding)
    (result,) = session.run(None, {"x": x}, run_options(-1))
    np.testing.assert_array_equal(result, [[0, 2]])


@pytest.mark.parametrize("text", ["one", "1.5"])
def test_an_id_that_is_none(device: DeviceInOrt, text: str) -> None:
    session = device.session(plain_model(), graph_capture="1")
    options = ort.RunOptions()
    options.add_run_config_entry("gpu_graph_id", text)
    bound = Bound(device, session)
    with pytest.raises(Exception, match=r"gpu_graph_id|graph annotation id"):
        session.run_with_iobinding(bound.binding, options)


# failures


@pytest.mark.parametrize("callback", ["begin_capture", "end_capture", "replay", "array_at", "synchronize_stream"])
def test_a_failure_is_told_and_the_next_run_begins_anew(device: DeviceInOrt, callback: str) -> None:
    session = device.session(plain_model(), graph_capture="1")
    bound = Bound(device, session)
    device.break_in(callback)
    with pytest.raises(Exception, match=f"told to fail in {callback}"):
        bound.run()
    device.break_in()
    release(session, 0)
    bound.check(3)
    bound.check(4)
    assert device.provider.statistics.replays >= 2


def test_a_run_that_breaks_off_is_no_graph(device: DeviceInOrt, monkeypatch: pytest.MonkeyPatch) -> None:
    from dovetail.testing.host_functions import HostDeviceFunction

    session = device.session(plain_model(), graph_capture="1", capture_after_runs="1")
    bound = Bound(device, session)
    into: Any = HostDeviceFunction._queue
    calls = iter(range(100))

    def fail(self: Any, *arrays: Any) -> None:
        if next(calls) == 4:
            raise RuntimeError("the second step of the capture")
        into(self, *arrays)

    monkeypatch.setattr(HostDeviceFunction, "_queue", fail)
    with pytest.raises(Exception, match="the second step of the capture"):
        bound.run()
    assert device.provider.statistics.replays == 0
    release(session, 0)
    bound.check(5)
