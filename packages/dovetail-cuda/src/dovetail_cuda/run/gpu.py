"""One device as everything here uses it: its driver, with the device's context current in whichever thread asks."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from functools import cached_property

from dovetail.errors import ProviderError
from dovetail_cuda.run.driver import Driver

__all__ = ["Gpu"]


class Gpu:
    """A device that is opened when it is first used.

    Args:
        driver: The driver.
        ordinal: Which of its devices.
    """

    def __init__(self, driver: Driver, ordinal: int) -> None:
        self._driver = driver
        self.ordinal = ordinal
        self._lock = threading.Lock()
        self._num_captures = 0
        self._leaving: deque[Callable[[], object]] = deque()

    @cached_property
    def _context(self) -> int:
        with self._lock:
            return self._driver.open_context(self.ordinal)

    @property
    def driver(self) -> Driver:
        """The driver, with this device's context made that of the thread: other libraries may have changed it."""
        self._driver.use_context(self._context)
        return self._driver

    @property
    def is_capturing(self) -> bool:
        """Whether some stream is recorded."""
        return self._num_captures > 0

    def release_later(self, release: Callable[[], object]) -> None:
        """Give something back when nothing runs that could use it; the garbage collector may call this anywhere."""
        self._leaving.append(release)

    def release_now(self) -> None:
        """Give back what waits for it; the next call does it where nothing can be waited for now."""
        if self._leaving and self.try_synchronize():
            while self._leaving:
                with contextlib.suppress(IndexError):  # another thread took the last one
                    self._leaving.popleft()()

    def try_synchronize(self) -> bool:
        """Wait for everything on the device; False where that is not possible, because some stream is captured."""
        if self.is_capturing:
            return False
        try:
            self.driver.synchronize()
        except ProviderError:  # a stream of another library is captured
            return False
        return True

    def begin_capture(self, stream: int) -> None:
        """Record what is put on a stream; until it ends the device is not waited for, which would spoil it."""
        self.driver.begin_capture(stream)
        with self._lock:
            self._num_captures += 1

    def end_capture(self, stream: int) -> int:
        """The graph of what was recorded."""
        with self._lock:
            self._num_captures -= 1
        return self.driver.end_capture(stream)
