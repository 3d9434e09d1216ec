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

    def release_later(self, release: Callable[[], object]) -> None:
        """Give something back when nothing runs that could use it; the garbage collector may call this anywhere."""
        self._leaving.append(release)

    def release_now(self) -> None:
        """Give back what waits for it.

        The device cannot be waited for while some stream is captured; then the next call does it.
        """
        if not self._leaving:
            return
        with contextlib.suppress(ProviderError):
            self.driver.synchronize()
            while self._leaving:
                self._leaving.popleft()()
