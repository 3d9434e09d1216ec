"""Running the same work in several threads that start at the same moment."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["THREADS", "in_threads"]

THREADS = 8


def in_threads(work: Callable[[int], None], count: int = THREADS) -> None:
    """Run ``work`` in every thread with the thread's number; the first error is raised here."""
    errors: list[BaseException] = []
    barrier = threading.Barrier(count)

    def run(number: int) -> None:
        try:
            barrier.wait()
            work(number)
        except BaseException as error:  # noqa: BLE001 - it is raised again in the test's own thread
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a thread hangs"
    if errors:
        raise errors[0]
