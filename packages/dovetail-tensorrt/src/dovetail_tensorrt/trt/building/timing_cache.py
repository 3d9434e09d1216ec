"""Timing caches: times by key, which can be looked at and edited one by one."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import dovetail
from dovetail import StrictAttributes
from dovetail_tensorrt.trt.answers import Reporter

__all__ = ["ITimingCache", "TimingCacheKey", "TimingCacheValue"]


@dataclass(frozen=True)
class TimingCacheKey:
    """What was timed, as text.

    >>> str(TimingCacheKey.parse("relu"))
    'relu'
    """

    _text: str

    @staticmethod
    def parse(text: str) -> TimingCacheKey:
        """The key that a text stands for."""
        return TimingCacheKey(str(text))

    def __str__(self) -> str:
        return self._text


class TimingCacheValue(StrictAttributes):
    """A tactic and the time that it takes."""

    __slots__ = ("tacticHash", "timingMSec")

    def __init__(self, tacticHash: int = 0, timingMSec: float = 0.0) -> None:  # noqa: N803 - the contract's names
        self.tacticHash = int(tacticHash)
        self.timingMSec = float(timingMSec)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TimingCacheValue):
            return NotImplemented
        return (self.tacticHash, self.timingMSec) == (other.tacticHash, other.timingMSec)

    __hash__ = None  # type: ignore[assignment]  # mutable, as the contract has it


class ITimingCache(StrictAttributes):
    """Times of one device and version; made by ``IBuilderConfig.create_timing_cache``."""

    __slots__ = ("_reporter", "cache")

    def __init__(self, cache: dovetail.TimingCache, reporter: Reporter) -> None:
        self.cache = cache
        """The engine's own cache."""
        self._reporter = reporter

    def serialize(self) -> dovetail.IHostMemory:
        """The cache as bytes."""
        return dovetail.IHostMemory(self.cache.serialize())

    def combine(self, input_cache: ITimingCache, ignore_mismatch: bool = False) -> bool:
        """Take over the entries of another; False when it is of another device and that is not to be ignored."""

        def combine() -> bool:
            self.cache.combine(input_cache.cache, ignore_mismatch)
            return True

        return self._reporter.attempt("ITimingCache.combine", combine, failure=False)

    def reset(self) -> bool:
        """Forget everything."""
        self.cache.reset()
        return True

    def queryKeys(self) -> list[TimingCacheKey]:  # noqa: N802 - the contract's name
        """All keys."""
        return [TimingCacheKey(key) for key in self.cache.query_keys()]

    def query(self, key: TimingCacheKey) -> TimingCacheValue:
        """What is known under a key: a time of infinity for what failed, and of 0 for what is not known."""
        found = self.cache.query(str(key))
        if found is None:
            return TimingCacheValue()
        time_ms = float("inf") if found.time_us is None else found.time_us / 1e3
        return TimingCacheValue(zlib.crc32(str(key).encode()), time_ms)

    def update(self, key: TimingCacheKey, value: TimingCacheValue) -> bool:
        """Change the time of an entry; False when there is no such entry or it is no time."""
        known: Any = self.cache.query(str(key))
        if known is None:
            self._reporter.refuse("ITimingCache.update", f"there is no entry {str(key)[:80]!r}")
            return False

        def update() -> bool:
            self.cache.update(str(key), type(known)(time_us=value.timingMSec * 1e3))
            return True

        return self._reporter.attempt("ITimingCache.update", update, failure=False)
