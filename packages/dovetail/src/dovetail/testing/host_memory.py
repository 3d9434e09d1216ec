"""The memory of a host device as it is watched: what is live, who touched it last, and whether that was in order.

A device would read whatever lies at an address. Here an address that belongs to no live allocation is refused, and so
is memory after its free, and memory that two streams touch without an event between them.
"""

from __future__ import annotations

import threading
from bisect import bisect_right, insort
from dataclasses import dataclass, field
from typing import Final

from dovetail.errors import ProviderError
from dovetail.testing.host_clocks import HOST_CLOCK, Moment, current_moment

__all__ = ["DeviceAllocations"]

_MAX_ACCESSES: Final = 256
"""Accesses that an allocation remembers before it forgets those that the host has waited for."""


@dataclass(frozen=True)
class _Access:
    start: int
    end: int
    moment: Moment
    is_write: bool


@dataclass(eq=False)
class _Allocation:
    start: int
    end: int
    accesses: list[_Access] = field(default_factory=list)
    freed_at: Moment | None = None
    """Where the stream is that frees it."""


class DeviceAllocations:
    """The live allocations of one device, by address."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._starts: list[int] = []
        self._allocations: dict[int, _Allocation] = {}
        self._lock = threading.RLock()  # the garbage collector gives memory back in the middle of anything

    def add(self, address: int, size_bytes: int) -> None:
        """Memory was given out, and the host filled it."""
        made = _Allocation(address, address + size_bytes)
        made.accesses.append(_Access(made.start, made.end, HOST_CLOCK.tick("allocate"), True))
        with self._lock:
            insort(self._starts, address)
            self._allocations[address] = made

    def remove(self, address: int) -> None:
        """Memory came back."""
        with self._lock:
            if self._allocations.pop(address, None) is not None:
                self._starts.remove(address)

    def free_at(self, address: int, moment: Moment) -> bool:
        """Memory will come back when a stream comes there; False when it is not ours."""
        with self._lock:
            allocation = self._allocations.get(address)
            if allocation is not None:
                self._check_not_freed(allocation, "free")
                allocation.freed_at = moment
            return allocation is not None

    def require(self, address: int, size_bytes: int, user: str) -> None:
        """Check that an address range may be used by work that is put on a stream now.

        Raises:
            ProviderError: It lies in no live allocation of this device, or its free was put on a stream already.
        """
        if size_bytes:
            with self._lock:
                self._check_not_freed(self._find(address, size_bytes, user), user)

    def touch(self, address: int, size_bytes: int, *, is_write: bool, name: str) -> None:
        """Note that the work under way, or the host, reads or writes a range now.

        Raises:
            ProviderError: It is not live, or others touch it and nothing orders the two.
        """
        if not size_bytes:
            return
        moment = current_moment(name)
        with self._lock:
            allocation = self._find(address, size_bytes, str(moment))
            freed = allocation.freed_at
            if freed is not None and not freed.knows(moment):
                self._check_not_freed(allocation, str(moment))
            self._order(allocation, _Access(address, address + size_bytes, moment, is_write))

    def _find(self, address: int, size_bytes: int, user: str) -> _Allocation:
        index = bisect_right(self._starts, address) - 1
        found = self._allocations[self._starts[index]] if index >= 0 else None
        if found is None or address + size_bytes > found.end:
            raise ProviderError(
                f"{user} got an address that is in no live memory of the device",
                where=self._where,
                expected=f"{size_bytes} bytes of one allocation of this device that was not given back",
                got=f"{address:#x}",
                fix="pass addresses of the device, not of the host, and keep memory until all work on it is done",
            )
        return found

    def _check_not_freed(self, allocation: _Allocation, user: str) -> None:
        if allocation.freed_at is not None:
            raise ProviderError(
                f"{user} uses memory after its free",
                where=self._where,
                got=f"{allocation.start:#x}, freed by {allocation.freed_at}",
                fix="free memory after the last work on it was put on the stream",
            )

    def _order(self, allocation: _Allocation, access: _Access) -> None:
        kept = []
        for other in allocation.accesses:
            overlaps = other.start < access.end and access.start < other.end
            is_known = access.moment.knows(other.moment)
            if overlaps and (access.is_write or other.is_write) and not is_known:
                self._refuse(access, other)
            covers = access.start <= other.start and other.end <= access.end
            if not (covers and is_known and (access.is_write or not other.is_write)):
                kept.append(other)
        if len(kept) >= _MAX_ACCESSES:
            host = HOST_CLOCK.tick("forget")
            kept = [other for other in kept if not host.knows(other.moment)]
        allocation.accesses = [*kept, access]

    def _refuse(self, access: _Access, other: _Access) -> None:
        does, did = ("writes" if which.is_write else "reads" for which in (access, other))
        raise ProviderError(
            f"{access.moment} {does} memory that {other.moment} {did}, and no event orders the two",
            where=self._where,
            got=f"{access.start:#x}",
            fix="put the work on the context's own stream, or wait there for an event of the other",
        )
