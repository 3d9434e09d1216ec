"""Dependence of captured graphs on the thread, the addresses and the shapes of the captured run."""

from __future__ import annotations

import os
import random
import threading
from typing import Any

import numpy as np
import pytest

from dovetail.provider.devices import Stream
from onnxruntime_ep_dovetail.device.shared import get_device
from tests.ort_ep.device.test_capture import Bound, counts, run_options
from tests.ort_ep.device.test_runs import bind
from tests.support import ort_ep
from tests.support.ort_devices import DeviceInOrt
from tests.support.ort_ep_models import feeds, plain_model, run_plain

pytestmark = [
    pytest.mark.versions,
    pytest.mark.skipif(ort_ep.RUNTIME < (1, 26), reason="ONNX Runtime captures graphs of plugins from 1.26 on"),
]

ROUTES = pytest.mark.parametrize("route", ["compile", "kernels"])
SEARCHES = int(os.environ.get("DOVETAIL_SEARCHES", "6"))
"""Random programs per route; set it higher for a longer search."""


def run_in_thread(work: Any) -> None:
    """Run work in a thread that ends before this returns; its error is raised here."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - it is raised again in the test's own thread
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]


@ROUTES
def test_a_thread_never_replays_the_graph_of_an_ended_thread(device: DeviceInOrt, route: str) -> None:
    session = device.session(plain_model(), graph_capture="1", route=route)
    for seed, bound in enumerate([Bound(device, session) for _ in range(6)]):
        run_in_thread(lambda bound=bound, seed=seed: bound.check(seed))


@ROUTES
@pytest.mark.parametrize("rows", [(4, 4), (4, 7), (7, 4)])
def test_other_buffers_are_captured_again(device: DeviceInOrt, route: str, rows: tuple[int, int]) -> None:
    session = device.session(plain_model(), graph_capture="1", route=route)
    first, second = (Bound(device, session, count) for count in rows)
    first.check(0)
    second.check(1)
    counts(device)
    second.check(2)
    assert counts(device) == (0, 0, 1)
    first.check(3)
    assert counts(device)[1] == 1


@ROUTES
@pytest.mark.parametrize("moved", ["x", "z", "y"])
def test_one_buffer_that_moves_is_noticed(device: DeviceInOrt, route: str, moved: str) -> None:
    session = device.session(plain_model(), graph_capture="1", route=route)
    values = {name: device.value(array) for name, array in feeds().items()}
    values["y"] = device.empty((4, 8))
    kept = dict(values)
    for seed in range(3):
        arrays = {name: array + np.float32(seed) for name, array in feeds().items()}
        if seed:
            values[moved] = device.empty((4, 8)) if moved == "y" else device.value(arrays[moved])
        for name, array in arrays.items():
            values[name].update_inplace(array)
        binding = bind(session, {name: values[name] for name in arrays}, {"y": values["y"]})
        session.run_with_iobinding(binding)
        np.testing.assert_allclose(values["y"].numpy(), run_plain(arrays), rtol=1e-5, atol=1e-6)
    assert kept


@ROUTES
def test_results_of_earlier_runs_are_not_overwritten(device: DeviceInOrt, route: str) -> None:
    session = device.session(plain_model(), graph_capture="1", route=route)
    results = []
    for seed in range(4):
        arrays = {name: array + np.float32(seed) for name, array in feeds().items()}
        binding = session.io_binding()
        for name, array in arrays.items():
            binding.bind_ortvalue_input(name, device.value(array))
        binding.bind_ortvalue_output("y", device.empty((4, 8)))
        session.run_with_iobinding(binding, run_options(seed % 2))
        results.append((binding.get_outputs()[0], run_plain(arrays)))
    for result, expected in results:
        np.testing.assert_allclose(result.numpy(), expected, rtol=1e-5, atol=1e-6)


def test_a_captured_id_run_with_host_values_raises(device: DeviceInOrt) -> None:
    session = device.session(plain_model(), graph_capture="1")
    bound = Bound(device, session)
    bound.check(0)
    inputs = {name: array + np.float32(9) for name, array in feeds().items()}
    with pytest.raises(Exception, match="bind inputs and outputs to memory of the device"):
        session.run(None, inputs)
    bound.check(2)


def test_ids_of_one_thread_share_a_stream(device: DeviceInOrt) -> None:
    session = device.session(plain_model(), graph_capture="1")
    bound = Bound(device, session)
    bound.check(0, 0)
    before = device.provider.statistics.streams
    used = device.provider.allocator.statistics.used_bytes
    for graph_id in range(1, 300):
        bound.check(graph_id, graph_id)
    assert device.provider.statistics.streams == before
    assert device.provider.allocator.statistics.used_bytes < used + 64 * (used + (1 << 20))
    counts(device)
    bound.check(1, 299)
    assert counts(device) == (0, 0, 1)


@ROUTES
def test_ended_threads_leave_no_graphs(device: DeviceInOrt, route: str) -> None:
    session = device.session(plain_model(), graph_capture="1", route=route)
    bound = Bound(device, session)
    run_in_thread(lambda: bound.check(0))
    used = device.provider.allocator.statistics.used_bytes
    graphs_before = len(device.provider._streams.streams)
    for seed in range(20):
        run_in_thread(lambda seed=seed: bound.check(seed, seed))
    # ONNX Runtime has a stream for each thread too, and ends it at some time after the thread.
    assert len(device.provider._streams.streams) <= graphs_before + 2
    assert device.provider.allocator.statistics.used_bytes <= used


class Program:
    """A random sequence of runs, releases and threads over one session, compared with NumPy."""

    def __init__(self, device: DeviceInOrt, route: str, seed: int) -> None:
        self.rng = random.Random(seed)
        warm_up = self.rng.choice(("0", "1", "2"))
        self.device = device
        self.session = device.session(plain_model(), graph_capture="1", route=route, capture_after_runs=warm_up)
        self.values = {rows: self._make_values(rows) for rows in (1, 4, 5)}
        self.num_runs = 0

    def _make_values(self, rows: int) -> dict[str, list[Any]]:
        made = {name: [self.device.value(array) for _ in range(2)] for name, array in feeds(rows).items()}
        return made | {"y": [self.device.empty((rows, 8)) for _ in range(2)]}

    def run_steps(self, count: int) -> None:
        """Run steps, some of them in threads of their own."""
        for _ in range(count):
            if self.rng.random() < 0.3:
                steps = self.rng.randrange(1, 4)
                run_in_thread(lambda steps=steps: [self._run_step() for _ in range(steps)])
            elif self.rng.random() < 0.1 and hasattr(self.session, "release_captured_graph"):
                self.session.release_captured_graph(self.rng.choice((0, 1, 2)))
            else:
                self._run_step()

    def _run_step(self) -> None:
        rng, rows = self.rng, self.rng.choice((1, 4, 5))
        values = {name: rng.choice(kept) for name, kept in self.values[rows].items()}
        arrays = {name: array * np.float32(rng.uniform(-2, 2)) for name, array in feeds(rows).items()}
        for name, array in arrays.items():
            values[name].update_inplace(array)
        values["y"].update_inplace(np.full((rows, 8), np.nan, np.float32))
        binding = bind(self.session, {name: values[name] for name in arrays}, {"y": values["y"]})
        self.session.run_with_iobinding(binding, run_options(rng.choice((-1, 0, 0, 1, 2))))
        np.testing.assert_allclose(values["y"].numpy(), run_plain(arrays), rtol=1e-5, atol=1e-6)
        self.num_runs += 1


@ROUTES
def test_random_programs_compute_the_same_with_graphs(device: DeviceInOrt, route: str) -> None:
    total = 0
    for seed in range(SEARCHES):
        program = Program(device, route, seed)
        program.run_steps(40)
        total += program.num_runs
    assert device.provider.statistics.replays > total / 2
    print(f"{total} runs of {SEARCHES} programs, {device.provider.statistics.replays} replays")


@ROUTES
def test_concurrent_threads_with_buffers_of_their_own(device: DeviceInOrt, route: str) -> None:
    from tests.support.threads import in_threads

    session = device.session(plain_model(), graph_capture="1", route=route)

    def work(number: int) -> None:
        bindings = [Bound(device, session, rows) for rows in (2, 2 + number)]
        for seed in range(12):
            bindings[seed // 3 % 2].check(seed)

    in_threads(work, 4)


class _Queue(Stream):
    """A queue whose handle is given again when it is closed, as a driver does."""

    handle = 7

    def record(self, *, is_timed: bool = False) -> Any:
        raise NotImplementedError

    def wait(self, event: Any) -> None:
        raise NotImplementedError

    def synchronize(self) -> None:
        return

    def close(self) -> None:
        return


def test_work_on_a_reused_handle_is_not_taken_for_done(device: DeviceInOrt, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = get_device(device.name)
    monkeypatch.setattr(device.provider, "create_stream", _Queue)
    first = shared.create_stream()
    assert first is not None
    for _ in range(5):
        shared.note_work(first)
    pending = shared.make_barrier()
    shared.wait(first)
    shared.close_stream(first)
    second = shared.create_stream()
    shared.note_work(second)
    barrier = shared.make_barrier()
    assert pending is not None
    assert pending()
    assert barrier is not None
    assert not barrier()
    shared.wait(second)
    assert barrier()
    assert second is not None
    shared.close_stream(second)


def test_the_number_of_a_thread_is_never_given_again() -> None:
    from onnxruntime_ep_dovetail.library import compute

    numbers: list[int] = []
    for _ in range(50):
        run_in_thread(lambda: numbers.append(compute.thread_number()))
    assert len(set(numbers)) == 50
    assert not any(compute.is_thread_alive(number) for number in numbers[:-1])
    assert compute.is_thread_alive(compute.thread_number())
