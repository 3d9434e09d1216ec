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
        self._is_ticking = False

    def add(self, item: T) -> None:
        """Begin to wait for an item, or wait for it anew."""
        self._since[item] = monotonic()
        if not self._is_ticking:
            self._is_ticking = True
            asyncio.get_running_loop().call_later(self._after_s, self._tick)

    def remove(self, item: T) -> None:
        """Wait for it no longer."""
        self._since.pop(item, None)

    def _tick(self) -> None:
        latest = monotonic() - self._after_s
        for item in [item for item, since in self._since.items() if since <= latest]:
            del self._since[item]
            self._act(item)
        self._is_ticking = bool(self._since)
        if self._is_ticking:
            asyncio.get_running_loop().call_later(self._after_s, self._tick)
