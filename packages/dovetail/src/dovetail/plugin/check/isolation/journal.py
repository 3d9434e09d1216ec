"""Which callback a checked process is in, written to memory that the process that watches it can read.

Writing is a few hundred nanoseconds, so every callback is recorded. A record outlives the process that wrote it: after
a crash it says which callback ran, for which rule, and with which inputs.
"""

from __future__ import annotations

import itertools
import mmap
import struct
import threading
import time
from dataclasses import dataclass
from typing import Final

__all__ = ["FRESH_SLOT", "Journal", "JournalEntry"]

_SLOTS: Final = 16
_RECORD: Final = struct.Struct("<QQ48s")  # when the callback began, when it ended (0: it runs), its name
_RULE: Final = struct.Struct("<8s")
_SITUATION: Final = struct.Struct("<240s")
_FIRST_SLOT: Final = _RULE.size + _SITUATION.size
_SIZE: Final = _FIRST_SLOT + _SLOTS * _RECORD.size

FRESH_SLOT: Final = _SLOTS - 1
"""The slot of processes that are copied from the checked one."""


@dataclass(frozen=True)
class JournalEntry:
    """One callback: its name, when it began, and whether it has returned."""

    method: str
    began_ns: int
    is_running: bool


class Journal:
    """The record of callbacks, one slot a thread.

    >>> journal = Journal()
    >>> journal.enter("enqueue")
    >>> journal.running()[0].method
    'enqueue'
    >>> journal.leave()
    >>> journal.running(), journal.latest().method
    ([], 'enqueue')
    """

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _SIZE)  # anonymous and shared with processes that are forked
        self._threads = threading.local()
        self._numbers = itertools.count(1)
        self._main = threading.get_ident()
        self._main_slot = 0

    def move_to(self, slot: int) -> None:
        """Use another slot for the main thread, in a process that was copied."""
        self._main, self._main_slot = threading.get_ident(), slot

    def enter(self, method: str) -> None:
        """Note that a callback begins."""
        _RECORD.pack_into(self._memory, self._offset(), time.monotonic_ns(), 0, method.encode()[:48])

    def leave(self) -> None:
        """Note that the callback of this thread returned or raised."""
        offset = self._offset()
        began_ns, _, method = _RECORD.unpack_from(self._memory, offset)
        _RECORD.pack_into(self._memory, offset, began_ns, time.monotonic_ns(), method)

    def abandon(self, slot: int) -> str:
        """Note that the process of a slot has ended; return the callback that it was in, or was in last."""
        offset = _FIRST_SLOT + slot * _RECORD.size
        began_ns, _, method = _RECORD.unpack_from(self._memory, offset)
        _RECORD.pack_into(self._memory, offset, began_ns, time.monotonic_ns(), method)
        return _text(method)

    def _offset(self) -> int:
        if threading.get_ident() == self._main:
            slot = self._main_slot
        else:
            slot = getattr(self._threads, "slot", 0)
            if not slot:
                slot = self._threads.slot = 1 + next(self._numbers) % (_SLOTS - 2)
        return _FIRST_SLOT + slot * _RECORD.size

    @property
    def rule_id(self) -> str:
        """The rule that is being judged; empty before the first."""
        return _text(_RULE.unpack_from(self._memory, 0)[0])

    @rule_id.setter
    def rule_id(self, value: str) -> None:
        _RULE.pack_into(self._memory, 0, value.encode())

    @property
    def situation(self) -> str:
        """The inputs of the latest run, in words."""
        return _text(_SITUATION.unpack_from(self._memory, _RULE.size)[0])

    @situation.setter
    def situation(self, value: str) -> None:
        _SITUATION.pack_into(self._memory, _RULE.size, value.encode()[: _SITUATION.size])

    def running(self) -> list[JournalEntry]:
        """The callbacks that have not returned, the oldest first."""
        return [entry for entry in self._entries() if entry.is_running]

    def latest(self) -> JournalEntry | None:
        """The callback that began last."""
        return max(self._entries(), key=lambda entry: entry.began_ns, default=None)

    def _entries(self) -> list[JournalEntry]:
        offsets = range(_FIRST_SLOT, _SIZE, _RECORD.size)
        records = [_RECORD.unpack_from(self._memory, offset) for offset in offsets]
        found = [JournalEntry(_text(method), began, not ended) for began, ended, method in records if began]
        return sorted(found, key=lambda entry: entry.began_ns)


def _text(raw: bytes) -> str:
    return raw.rstrip(b"\0").decode(errors="replace")
