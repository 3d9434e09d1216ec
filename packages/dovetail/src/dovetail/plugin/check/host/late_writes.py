"""Memory of runs that are over: it is kept for a while, and whoever writes to it later is found out."""

from __future__ import annotations

import time
from collections import deque
from typing import Final

import numpy as np
import numpy.typing as npt

from dovetail.plugin.check.host.hostile import GuardedBuffer
from dovetail.plugin.check.host.runs import RunBench

__all__ = ["KeptMemory"]

_MOST_BYTES: Final = 64 << 20
_PATIENCE_S: Final = 0.03


class KeptMemory:
    """The buffers of the latest runs with what they held when ``enqueue`` returned."""

    def __init__(self) -> None:
        self._kept: deque[tuple[GuardedBuffer, npt.NDArray[np.uint8], str]] = deque()
        self._nbytes = 0
        self._found: str | None = None

    def keep(self, bench: RunBench, words: str) -> None:
        """Keep the memory of a run; the oldest is let go of when there is too much."""
        for buffer in (*bench.inputs, *bench.outputs, bench.workspace):
            self._kept.append((buffer, buffer.body.copy(), words))
            self._nbytes += buffer.nbytes
        while self._nbytes > _MOST_BYTES and len(self._kept) > 1:
            self._let_go()

    def has_changed(self, bench: RunBench) -> bool:
        """Whether the memory of a run is not as it was when ``enqueue`` returned."""
        own = {id(buffer) for buffer in (*bench.inputs, *bench.outputs)}
        bench.fetch()
        return any(id(buffer) in own and not np.array_equal(buffer.body, body) for buffer, body, _ in self._kept)

    def drop(self, bench: RunBench) -> None:
        """Let go of the memory of a run that the host itself is about to change."""
        own = {id(buffer) for buffer in (*bench.inputs, *bench.outputs, bench.workspace)}
        mine = [item for item in self._kept if id(item[0]) in own]
        self._kept = deque(item for item in self._kept if id(item[0]) not in own)
        self._nbytes -= sum(buffer.nbytes for buffer, _, _ in mine)

    def _let_go(self) -> None:
        buffer, body, words = self._kept.popleft()
        self._nbytes -= buffer.nbytes
        self._look_at(buffer, body, words)

    def find_late_write(self) -> str | None:
        """Wait a moment, then look for the first buffer that changed, in words."""
        if self._found is None:
            time.sleep(_PATIENCE_S)
            for item in self._kept:
                self._look_at(*item)
        return self._found

    def _look_at(self, buffer: GuardedBuffer, body: npt.NDArray[np.uint8], words: str) -> None:
        buffer.fetch()
        changed = np.flatnonzero(buffer.body != body)
        if changed.size and self._found is None:
            self._found = f"{words}: {changed.size} bytes of {buffer.name} changed after enqueue had returned"
