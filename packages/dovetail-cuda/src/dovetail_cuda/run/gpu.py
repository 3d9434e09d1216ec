"""One device as everything here uses it: its driver, with the device's context current in whichever thread asks."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from functools import cached_property
from typing import Final

from dovetail.errors import ProviderError
from dovetail_cuda.run.driver import Driver

__all__ = ["Gpu"]

_LONGEST_RECORDING_S: Final = 10.0
"""Nothing is done while a stream is recorded, so that it takes milliseconds."""


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
        self._recording = threading.Condition()
        self._recorders: dict[int, int] = {}
        """The streams that are recorded, and the thread that records each."""
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
        return bool(self._recorders)

    def release_later(self, release: Callable[[], object]) -> None:
        """Give something back when nothing runs that could use it; the garbage collector may call this anywhere."""
        self._leaving.append(release)

    def release_now(self) -> None:
        """Give back what waits for it; the next call does it where nothing can be waited for now."""
        if self._leaving and self.try_synchronize():
            while self._leaving:
                with contextlib.suppress(IndexError):  # another thread took the last one
                    self._leaving.popleft()()

    def synchronize(self) -> None:
        """Wait for everything on the device, after whatever other threads record: waiting would spoil it.

        Raises:
            ProviderError: This thread records, or work on the device failed.
        """
        with self._recording:
            is_own = threading.get_ident() in self._recorders.values()
            if is_own or not self._recording.wait_for(lambda: not self._recorders, _LONGEST_RECORDING_S):
                raise ProviderError("the device cannot be waited for while a stream is recorded", where="CUDA driver")
            self.driver.synchronize()

    def try_synchronize(self) -> bool:
        """Wait for everything on the device; False where that is not possible, because some stream is captured."""
        with self._recording:
            if self.is_capturing:
                return False
            try:
                self.driver.synchronize()
            except ProviderError:  # a stream of another library is captured
                return False
            return True

    def begin_capture(self, stream: int) -> None:
        """Record what is put on a stream; until it ends nobody waits for the device."""
        with self._recording:
            self.driver.begin_capture(stream)
            self._recorders[stream] = threading.get_ident()

    def end_capture(self, stream: int) -> int:
        """The graph of what was recorded."""
        with self._recording:
            try:
                return self.driver.end_capture(stream)
            finally:
                self._recorders.pop(stream, None)
                self._recording.notify_all()
