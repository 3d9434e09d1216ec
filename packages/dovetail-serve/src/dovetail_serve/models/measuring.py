"""Measures a model when it is loaded: how long batches take, and how long a change of threads takes."""

from __future__ import annotations

import asyncio
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Final

__all__ = ["Measurement", "batch_sizes", "measure_batches", "measure_hop"]

_LEAST_RUNS: Final = 5
_MOST_RUNS: Final = 50
_SIZE_NS: Final = 30_000_000
"""After so long, one size of batches was run often enough."""
_SLOW_NS: Final = 500_000_000
"""What takes so long is measured once."""
_ALL_NS: Final = 2_000_000_000
"""After so long, larger sizes are not measured."""
_HOPS: Final = 100


@dataclass(frozen=True)
class Measurement:
    """What was measured of one model."""

    times_ns: dict[int, int] = field(default_factory=dict)
    """Samples -> the least time of requests of one sample each, put together, run and given out."""
    problem: str = ""
    """Why nothing, or not everything, was measured."""


def batch_sizes(most: int) -> list[int]:
    """The sizes that are measured.

    >>> batch_sizes(12)
    [1, 2, 4, 8, 12]
    """
    sizes = [1 << i for i in range(most.bit_length()) if 1 << i <= most]
    return sizes if not sizes or sizes[-1] == most else [*sizes, most]


def measure_batches(run: Callable[[int], None], most: int) -> Measurement:
    """Time batches of 1, 2, 4 and so on samples.

    Args:
        run: Runs that many requests of one sample as a batch.
        most: The largest batch.
    """
    times: dict[int, int] = {}
    began = time.perf_counter_ns()
    for size in batch_sizes(max(most, 1)):
        if time.perf_counter_ns() - began > _ALL_NS:
            return Measurement(times, f"{size} samples and more were not measured, as runs take long")
        times[size] = _measure_size(run, size)
    return Measurement(times)


def _measure_size(run: Callable[[int], None], size: int) -> int:
    run(size)
    spans: list[int] = []
    began = time.perf_counter_ns()
    while not _is_enough(len(spans), time.perf_counter_ns() - began):
        start = time.perf_counter_ns()
        run(size)
        spans.append(time.perf_counter_ns() - start)
    # What runs beside it only ever adds time.
    return min(spans)


def _is_enough(count: int, spent_ns: int) -> bool:
    """Whether a size was run often enough, or takes so long that what runs vary does not matter.

    >>> [_is_enough(0, 0), _is_enough(5, 40_000_000), _is_enough(50, 1000), _is_enough(1, 2_000_000_000)]
    [False, True, True, True]
    """
    if count < _LEAST_RUNS:
        return count > 0 and spent_ns > _SLOW_NS
    return count >= _MOST_RUNS or spent_ns > _SIZE_NS


@cache
def measure_hop() -> int:
    """How long it takes to have a worker thread answer a task of an event loop, in nanoseconds.

    The loop is one of its own, so that the traffic of the server's does not count. Call it on a thread without a loop.
    """
    return asyncio.run(_measure_hops())


async def _measure_hops() -> int:
    loop = asyncio.get_running_loop()
    wake = threading.Lock()
    wake.acquire()
    box: list[asyncio.Future[None] | None] = []

    def work() -> None:
        while wake.acquire() and (future := box.pop()) is not None:
            loop.call_soon_threadsafe(future.set_result, None)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    spans: list[int] = []
    for _ in range(_HOPS):
        start = time.perf_counter_ns()
        future = loop.create_future()
        box.append(future)
        wake.release()
        await future
        spans.append(time.perf_counter_ns() - start)
    box.append(None)
    wake.release()
    thread.join()
    return int(statistics.median(spans))
