"""Sessions run from many threads while others come and go: results are right, and memory stays flat."""

from __future__ import annotations

import gc
import itertools
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

import dovetail
from tests.support import ort_ep
from tests.support.ort_ep_models import feeds, plain_model, plugin_model, run_plain, two_part_model

Session = Callable[..., ort.InferenceSession]
THREADS, SESSIONS = 4, 2


@dovetail.layer("ConcurrentTwice")
def twice(x: Any) -> Any:
    return x + x


def resident_bytes() -> int:
    """Memory that this process has now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def run_together(work: list[Callable[[], None]]) -> None:
    """Run functions at once, each in a thread; the first failure is raised."""
    failures: list[BaseException] = []

    def guarded(function: Callable[[], None]) -> None:
        try:
            function()
        except BaseException as error:  # noqa: BLE001 - it is raised again below
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(one,)) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def churn(make: Session, runs: int, sessions_made: int) -> None:
    """Run sessions from several threads, with several shapes, while sessions are made, run and let go."""
    kept = [make(plain_model(), claim="all") for _ in range(SESSIONS)]
    wanted = {rows: run_plain(feeds(rows)) for rows in (1, 3, 4, 8)}

    def run(number: int) -> None:
        given = {rows: feeds(rows) for rows in wanted}
        for index in range(runs):
            rows = (1, 3, 4, 8)[(index // 16 + number) % 4]
            for session in kept:
                got = session.run(None, given[rows])[0]
                assert np.allclose(got, wanted[rows], rtol=1e-5, atol=1e-6)

    def make_and_drop() -> None:
        for _ in range(sessions_made):
            session = make(plain_model(), claim="all")
            assert np.allclose(session.run(None, feeds(3))[0], wanted[3], rtol=1e-5, atol=1e-6)

    run_together([*(lambda n=number: run(n) for number in range(THREADS)), make_and_drop])


def test_threads_and_sessions_that_come_and_go(dovetail_session: Session) -> None:
    before = ort_ep.count_sessions()
    churn(dovetail_session, 60, 4)
    assert ort_ep.count_sessions() == before


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_ten_thousand_runs_a_thread_and_session(dovetail_session: Session) -> None:
    churn(dovetail_session, 500, 5)
    gc.collect()
    sizes = [resident_bytes()]
    for _ in range(5):
        churn(dovetail_session, 2000, 10)
        gc.collect()
        sizes.append(resident_bytes())
    # The first rounds may still grow pools; from then on a leak of 100 bytes a run would be 16 MB.
    assert sizes[-1] - sizes[2] < 8 << 20, sizes


def test_memory_is_flat(dovetail_session: Session) -> None:
    """The leanest of several rounds is judged: one may make the runs of a second thread, and a leak is in each."""
    session = dovetail_session(plain_model(), claim="all")
    given = {rows: feeds(rows) for rows in range(1, 9)}

    def work() -> None:
        for index in range(400):
            session.run(None, given[1 + index // 8 % 8])

    def kept_bytes() -> int:
        run_together([work] * 2)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        sizes = [kept_bytes() for _ in range(5)]
    finally:
        tracemalloc.stop()
    assert min(after - before for before, after in itertools.pairwise(sizes)) < 20_000, sizes


def test_sessions_that_end_leave_nothing(dovetail_session: Session) -> None:
    """The structs of what was released last are kept for a while, and caches fill; a leak is in every round."""

    def kept_bytes() -> int:
        for _ in range(8):
            dovetail_session(plain_model(), claim="all").run(None, feeds())
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        sizes = [kept_bytes() for _ in range(5)]
    finally:
        tracemalloc.stop()
    assert min(after - before for before, after in itertools.pairwise(sizes)) < 8 * 1000, sizes


def test_several_partitions_at_once(dovetail_session: Session) -> None:
    """Partitions of one model that do not wait for each other, on threads of ONNX Runtime."""
    import onnx
    from onnx import helper

    width = 6
    nodes = [helper.make_node("Relu", ["x"], [f"a{i}"]) for i in range(width)]
    nodes += [helper.make_node("Sqrt", [f"a{i}"], [f"b{i}"]) for i in range(width)]
    nodes += [helper.make_node("Neg", [f"b{i}"], [f"y{i}"]) for i in range(width)]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [info("x", 1, ["N", 16])], [info(f"y{i}", 1, ["N", 16]) for i in range(width)]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    onnx.checker.check_model(model)
    options = ort_ep.session_options(fallback=True, entries={"session.inter_op.allow_spinning": "0"})
    options.execution_mode = ort.ExecutionMode.ORT_PARALLEL
    options.inter_op_num_threads = 2
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = dovetail_session(model, options=options, claim="all", exclude="Sqrt")
    assert len(ort_ep.assigned(session)[ort_ep.EP]) == 2 * width
    for rows in (1, 5, 1) * 5:
        x = feeds(rows)["x"]
        for got in session.run(None, {"x": x}):
            np.testing.assert_allclose(got, -np.sqrt(np.maximum(x, 0)), rtol=1e-6)


def test_runs_that_are_not_waited_for(dovetail_session: Session) -> None:
    session = dovetail_session(plugin_model("ConcurrentTwice"), claim="all")
    x = feeds()["x"]
    done, results = threading.Semaphore(0), []

    def take(outputs: Any, _data: Any, error: str) -> None:
        results.append((outputs, error))
        done.release()

    for _ in range(20):
        session.run_async(None, {"x": x}, take, None)
    for _ in range(20):
        assert done.acquire(timeout=60)
    for outputs, error in results:
        assert not error
        np.testing.assert_array_equal(outputs[0], -2 * np.maximum(x, 0))


def test_a_failure_in_one_thread_harms_no_other(dovetail_session: Session) -> None:
    @dovetail.layer("ConcurrentPicky")
    def picky(x: Any) -> Any:
        if x.shape[0] == 5:
            raise ValueError("not five")
        return x

    session = dovetail_session(plugin_model("ConcurrentPicky"), claim="all")

    def fail() -> None:
        for _ in range(30):
            with pytest.raises(Exception, match="not five"):
                session.run(None, {"x": feeds(5)["x"]})

    def succeed() -> None:
        x = feeds(4)["x"]
        for _ in range(30):
            np.testing.assert_array_equal(session.run(None, {"x": x})[0], -np.maximum(x, 0))

    run_together([fail, succeed, fail, succeed])


def test_registrations_that_come_and_go_while_others_run(dovetail_session: Session) -> None:
    session = dovetail_session(two_part_model(), fallback=True, claim="all", exclude="Sqrt")
    x = feeds()["x"]

    def run() -> None:
        for _ in range(60):
            np.testing.assert_allclose(session.run(None, {"x": x})[0], -np.sqrt(np.maximum(x, 0)), rtol=1e-6)

    def register() -> None:
        for _ in range(5):
            ort_ep.register("another")
            ort.unregister_execution_provider_library("another")

    run_together([run, run, register])
