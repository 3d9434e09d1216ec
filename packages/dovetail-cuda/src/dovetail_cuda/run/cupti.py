"""Kernels as CUPTI sees them, in captured graphs too, each with the number of whoever launched it.

The package ``cupti-python`` is not required: without it there is no tracer, and launches are timed by events. CUPTI is
one for the process, and so is the tracer.
"""

from __future__ import annotations

import importlib.util
import threading
import time
import warnings
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

__all__ = ["KernelTracer", "TracedKernel", "has_tracer", "open_tracer"]

_BUFFER_BYTES: Final = 8 << 20


@dataclass(frozen=True, kw_only=True)
class TracedKernel:
    """One kernel that ran."""

    name: str
    start_us: float
    """On the clock of ``time.perf_counter``."""
    duration_us: float
    stream: int
    number: int | None
    """What was pushed when it, or the graph that it is a node of, was launched."""
    graph_node: int
    """Orders the kernels of one graph; 0 for one that was launched by itself."""


@cache
def has_tracer() -> bool:
    """Whether the package is installed; CUPTI itself is left alone, for it slows down whatever it watches."""
    return importlib.util.find_spec("cupti") is not None


@cache
def open_tracer() -> KernelTracer | None:
    """The tracer of this process, or None; it warns where the package is installed and cannot be used."""
    if not has_tracer():
        return None
    try:
        from cupti import cupti

        return KernelTracer(cupti)
    except (ImportError, OSError, RuntimeError) as error:
        warnings.warn(
            f"cupti-python is installed and cannot be used ({error}): launches are timed by events, and kernels of "
            "captured graphs are not told; install the one of the driver's version of CUDA or before",
            RuntimeWarning,
            stacklevel=2,
        )
        return None


class KernelTracer:
    """Notes kernels between ``start`` and ``stop``.

    Args:
        cupti: CUPTI's bindings.
    """

    def __init__(self, cupti: Any) -> None:
        self._cupti = cupti
        self._kernel, self._correlation = (
            cupti.ActivityKind.CONCURRENT_KERNEL,
            cupti.ActivityKind.EXTERNAL_CORRELATION,
        )
        # CUPTI tells of numbers that were pushed only with the calls of the driver that they were pushed for.
        self._kinds = (self._kernel, self._correlation, cupti.ActivityKind.DRIVER)
        self._custom = cupti.ExternalCorrelationKind.CUSTOM0
        self._kernels: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._lock = threading.Lock()
        cupti.activity_register_callbacks(lambda: (_BUFFER_BYTES, 0), self._take)

    def start(self) -> None:
        """Note from now on."""
        self._cupti.activity_flush_all(1)
        with self._lock:
            self._kernels, self._numbers = [], {}
        self._offset_ns = time.perf_counter_ns() - self._cupti.get_timestamp()
        for kind in self._kinds:
            self._cupti.activity_enable(kind)

    def push(self, number: int) -> None:
        """Put a number on everything that this thread launches."""
        self._cupti.activity_push_external_correlation_id(self._custom, number)

    def pop(self) -> None:
        """Take the last number off."""
        self._cupti.activity_pop_external_correlation_id(self._custom)

    def stop(self) -> list[TracedKernel]:
        """What ran since, in the order it started; the device must have been waited for."""
        self._cupti.activity_flush_all(1)
        for kind in self._kinds:
            self._cupti.activity_disable(kind)
        with self._lock:
            found = [self._describe(*kernel) for kernel in self._kernels]
            self._kernels = []
        return sorted(found, key=lambda kernel: kernel.start_us)

    def _take(self, records: Any) -> None:
        """Copy what is wanted of records, which are gone afterwards."""
        with self._lock:
            for record in records:
                if record.kind == self._kernel:
                    times = (record.start, record.end)
                    graph = (record.correlation_id, record.stream_id, record.graph_node_id)
                    self._kernels.append((record.name, *times, *graph))
                elif record.kind == self._correlation and record.external_kind == self._custom:
                    self._numbers[record.correlation_id] = record.external_id

    def _describe(self, name: str, start: int, end: int, correlation: int, stream: int, node: int) -> TracedKernel:
        return TracedKernel(
            name=name,
            start_us=(start + self._offset_ns) / 1e3,
            duration_us=(end - start) / 1e3,
            stream=stream,
            number=self._numbers.get(correlation),
            graph_node=node,
        )
