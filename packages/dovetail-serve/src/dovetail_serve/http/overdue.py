"""Requests that take long: those whose bytes do not come, and those whose client may have gone.

A timer for each request would cost more than the rest of reading it, so one timer looks after all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Generic, TypeVar

__all__ = ["Overdue"]

T = TypeVar("T")


class Overdue(Generic[T]):
    """Calls ``act`` once for each item that stays longer than ``after_s``, up to twice as late."""

    def __init__(self, after_s: float, act: Callable[[T], None]) -> None:
        self._after_s = after_s
        self._act = act
        self._since: dict[T, float] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        """Where the timer runs; an application may be used on one loop after another."""

    def add(self, item: T) -> None:
        """Begin to wait for an item, or wait for it anew."""
        self._since[item] = monotonic()
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop = loop
            loop.call_later(self._after_s, self._tick, loop)

    def remove(self, item: T) -> None:
        """Wait for it no longer."""
        self._since.pop(item, None)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        latest = monotonic() - self._after_s
        for item in [item for item, since in self._since.items() if since <= latest]:
            del self._since[item]
            self._act(item)
        if self._since:
            loop.call_later(self._after_s, self._tick, loop)
        else:
            self._loop = None
