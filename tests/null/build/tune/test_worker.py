"""The timing thread: one thread for all calls, errors with their traceback, and calls that hang in every way."""

from __future__ import annotations

import contextlib
import gc
import signal
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator

import pytest

from dovetail.build.tune.worker import CallTimeoutError, TimingWorker
from dovetail.errors import ResourceError, UsageError


@pytest.fixture
def worker() -> Iterator[TimingWorker]:
    with TimingWorker(grace_s=0.4) as made:
        yield made


def spin() -> None:
    while True:
        pass


def sleep() -> None:
    time.sleep(3600)


def wait() -> None:
    threading.Event().wait()


def swallow_every_exception() -> None:
    while True:
        with contextlib.suppress(Exception):
            time.sleep(0.001)


def ident() -> int:
    return threading.get_ident()


def test_every_call_runs_on_the_same_other_thread(worker: TimingWorker) -> None:
    idents = {worker.call(ident, 10) for _ in range(20)}
    assert len(idents) == 1
    assert idents != {threading.get_ident()}


def test_the_build_may_run_in_any_thread(worker: TimingWorker) -> None:
    found: list[int] = []
    builds = [threading.Thread(target=lambda: found.append(worker.call(ident, 10))) for _ in range(4)]
    for build in builds:
        build.start()
    for build in builds:
        build.join()
    assert len(found) == 4
    assert set(found) == {worker.call(ident, 10)}


def test_an_error_passes_through_with_its_traceback(worker: TimingWorker) -> None:
    def broken() -> None:
        raise KeyError("nothing here")

    with pytest.raises(KeyError, match="nothing here") as caught:
        worker.call(broken, 10)
    assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "broken"
    assert worker.call(lambda: 7, 10) == 7


def test_a_call_that_exits_ends_neither_the_process_nor_the_thread(worker: TimingWorker) -> None:
    before = worker.call(ident, 10)
    with pytest.raises(SystemExit):
        worker.call(lambda: exit(3), 10)
    assert worker.call(ident, 10) == before


@pytest.mark.parametrize("hang", [spin, swallow_every_exception])
def test_python_that_hangs_is_stopped(worker: TimingWorker, hang: Callable[[], None]) -> None:
    before = worker.call(threading.current_thread, 10)
    with pytest.raises(CallTimeoutError, match=r"within 0.1 s; it was stopped") as caught:
        worker.call(hang, 0.1)
    assert not caught.value.abandoned
    assert isinstance(caught.value, ResourceError)
    assert worker.abandoned == 0
    assert not before.is_alive()
    assert worker.call(lambda: 7, 10) == 7


def test_a_call_that_swallows_the_first_stop_is_stopped_by_a_later_one(worker: TimingWorker) -> None:
    stops: list[BaseException] = []

    def stubborn() -> None:
        while True:
            try:
                spin()
            except BaseException as error:
                stops.append(error)
                if len(stops) == 3:
                    raise

    with pytest.raises(CallTimeoutError, match="it was stopped"):
        worker.call(stubborn, 0.1)
    assert len(stops) == 3


@pytest.mark.parametrize("hang", [sleep, wait])
def test_c_that_hangs_is_abandoned_and_a_fresh_thread_goes_on(worker: TimingWorker, hang: Callable[[], None]) -> None:
    before = worker.call(ident, 10)
    start = time.monotonic()
    with pytest.raises(CallTimeoutError, match="its thread was abandoned") as caught:
        worker.call(hang, 0.1)
    assert caught.value.abandoned
    assert time.monotonic() - start < 5
    assert worker.abandoned == 1
    assert worker.call(ident, 10) != before


def test_what_an_abandoned_call_may_write_stays_alive(worker: TimingWorker) -> None:
    class Buffer:
        pass

    release, ended = threading.Event(), threading.Event()

    def make_call() -> tuple[Callable[[], None], weakref.ref[Buffer]]:
        buffer = Buffer()

        def hang() -> None:
            release.wait()
            buffer.late = True  # type: ignore[attr-defined]
            ended.set()

        return hang, weakref.ref(buffer)

    hang, buffer = make_call()
    with pytest.raises(CallTimeoutError):
        worker.call(hang, 0.05)
    del hang
    gc.collect()
    assert buffer() is not None
    release.set()
    # The stop that was waiting all the time arrives as soon as the call is back in Python.
    assert not ended.wait(0.2)
    assert buffer() is not None


@pytest.mark.parametrize("fails", [False, True])
def test_nothing_of_a_call_that_ended_is_kept(worker: TimingWorker, fails: bool) -> None:
    class Buffer:
        pass

    def make_call() -> tuple[Callable[[], None], weakref.ref[Buffer]]:
        buffer = Buffer()

        def function() -> None:
            if fails and buffer:
                raise ValueError("no")

        return function, weakref.ref(buffer)

    function, buffer = make_call()
    with contextlib.suppress(ValueError):
        worker.call(function, 10)
    del function
    deadline = time.monotonic() + 5
    # Free-threaded Python puts the counts of functions and frames off until it collects.
    has_lock = getattr(sys, "_is_gil_enabled", lambda: True)()
    while buffer() is not None and time.monotonic() < deadline:
        time.sleep(0.01)
        if not has_lock:
            gc.collect()
    assert buffer() is None, "freed by reference counts alone"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not interrupt a wait for a lock")
def test_an_interrupt_of_the_waiting_thread_stops_the_call(worker: TimingWorker) -> None:
    main = threading.get_ident()
    before = worker.call(threading.current_thread, 10)
    threading.Timer(0.1, lambda: signal.pthread_kill(main, signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        worker.call(spin, 30)
    assert not before.is_alive()
    assert worker.call(lambda: 7, 10) == 7


def test_close_ends_the_thread_and_refuses_calls() -> None:
    worker = TimingWorker()
    thread = worker.call(threading.current_thread, 10)
    worker.close()
    worker.close()
    assert not thread.is_alive()
    with pytest.raises(UsageError, match="closed"):
        worker.call(ident, 10)


def test_a_call_cannot_wait_for_its_own_thread(worker: TimingWorker) -> None:
    with pytest.raises(UsageError, match="cannot start another"):
        worker.call(lambda: worker.call(ident, 10), 10)


@pytest.mark.parametrize("timeout_s", [0, -1, float("nan")])
def test_a_time_limit_is_needed(worker: TimingWorker, timeout_s: float) -> None:
    with pytest.raises(UsageError, match="time limit"):
        worker.call(ident, timeout_s)


def test_an_endless_limit_is_fine(worker: TimingWorker) -> None:
    assert worker.call(lambda: 7, float("inf")) == 7
