"""An event loop in a thread of its own, for callers that have none."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

__all__ = ["LoopThread"]

T = TypeVar("T")


class LoopThread:
    """Runs coroutines for other threads until it is closed."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there, and wait for its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def call(self, function: Callable[[], object]) -> None:
        """Have a function called there soon."""
        self._loop.call_soon_threadsafe(function)

    def close(self) -> None:
        """Cancel what is left, and end the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
