"""Measuring what Python, NumPy and compiled libraries allocate while something runs."""

from __future__ import annotations

import ctypes
import gc
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["count_heap_bytes", "heap_growth_bytes", "open_handles", "traced_growth_bytes", "traced_peak_bytes"]


class _HeapCounts(ctypes.Structure):
    """What ``mallinfo2`` of the C library returns."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in ("arena", "ordblks", "smblks", "hblks", "mapped", "usmblks", "fsmblks", "used", "fordblks", "kept")
    )


@contextmanager
def _tracing() -> Iterator[None]:
    was_tracing = tracemalloc.is_tracing()
    if not was_tracing:
        tracemalloc.start()
    try:
        yield
    finally:
        if not was_tracing:
            tracemalloc.stop()


def open_handles() -> dict[str, int]:
    """How many files and threads this process has open; files are not counted where the system does not list them."""
    folder = Path("/proc/self/fd")
    files = len(list(folder.iterdir())) if folder.is_dir() else 0
    return {"files": files, "threads": threading.active_count()}


def traced_peak_bytes(action: Callable[[], object]) -> int:
    """The most bytes that were allocated at one time while the action ran, beyond what there was before."""
    with _tracing():
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        result = action()
        _, peak = tracemalloc.get_traced_memory()
        del result
    return max(peak - before, 0)


def traced_growth_bytes(action: Callable[[], object], *, times: int) -> int:
    """How many bytes more are held after the action ran so many times than before; a warm-up does not count."""
    with _tracing():
        for _ in range(8):
            action()
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(times):
            action()
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    return after - before


def heap_growth_bytes(action: Callable[[], object], *, times: int) -> int:
    """The same for memory of the C library's heap, where compiled code allocates; 0 where it does not tell."""
    for _ in range(8):
        action()
    gc.collect()
    before = count_heap_bytes()
    for _ in range(times):
        action()
    gc.collect()
    return count_heap_bytes() - before


def count_heap_bytes() -> int:
    """What is allocated now on the C library's heap; 0 where it does not tell."""
    count = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if count is None:
        return 0
    count.restype = _HeapCounts
    counts = count()
    return int(counts.used + counts.mapped)
