"""On which thread requests run: sizes that were measured, sizes that turn out to be fast, runs that turn out slow."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import numpy as np
import pytest

from dovetail_serve.models.executors import LoopExecutor
from dovetail_serve.models.pending import PendingRequest
from dovetail_serve.protocol.requests import InferRequest, InferResponse

MOST_NS = 50_000


class Runner:
    """Notes what runs on the loop."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.takes_s = 0.0

    def run(self, batch: Any) -> None:
        self.sizes += [each.arrays[0].nbytes for each in batch]
        time.sleep(self.takes_s)


class Threads:
    """Answers at once, as if a thread had run the request in so long."""

    def __init__(self, compute_ns: int) -> None:
        self.compute_ns = compute_ns
        self.sizes: list[int] = []

    def submit(self, pending: PendingRequest) -> asyncio.Future[None]:
        self.sizes.append(pending.arrays[0].nbytes)
        pending.response = InferResponse("m", "1", {}, compute_ns=self.compute_ns)
        future = asyncio.get_running_loop().create_future()
        future.set_result(None)
        return future

    def cancel(self, pending: PendingRequest) -> None:
        raise AssertionError


def submit_all(executor: LoopExecutor, *sizes: int) -> None:
    async def run() -> None:
        for size in sizes:
            pending = PendingRequest(InferRequest("m", {}), (np.zeros(size, np.uint8),), 1, None, 0)
            future = executor.submit(pending)
            if future is not None:
                await future
                await asyncio.sleep(0)

    asyncio.run(run())


@pytest.mark.parametrize(("compute_ns", "on_loop"), [(MOST_NS - 1, [8, 64, 32]), (MOST_NS, [8, 32])])
def test_a_larger_request_that_is_fast_runs_on_the_loop_the_next_time(compute_ns: int, on_loop: list[int]) -> None:
    runner, threads = Runner(), Threads(compute_ns)
    executor: Any = LoopExecutor(runner, threads, 32, MOST_NS)  # type: ignore[arg-type]
    submit_all(executor, 8, 64, 64, 32)
    assert runner.sizes == on_loop
    assert threads.sizes == [64] * (4 - len(on_loop))


def test_runs_that_stay_slow_go_to_the_threads() -> None:
    runner, threads = Runner(), Threads(MOST_NS)
    executor: Any = LoopExecutor(runner, threads, 32, MOST_NS)  # type: ignore[arg-type]
    runner.takes_s = 0.001
    submit_all(executor, 8, 8, 8, 8)
    assert executor.is_demoted
    assert (len(runner.sizes), len(threads.sizes)) == (3, 1)
