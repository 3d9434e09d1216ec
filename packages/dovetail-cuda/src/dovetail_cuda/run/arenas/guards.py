"""Memory that is watched: what is given back twice is told at once, what is never given back when somebody asks."""

from __future__ import annotations

import threading
import traceback
import warnings
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from dovetail_cuda.run.arenas.memory import DeviceMemory

__all__ = ["GuardedMemory", "Leak"]

_NUM_FRAMES: Final = 12
_NUM_REMEMBERED: Final = 4096
"""How many places of memory that came back are remembered, for the day it comes back again."""

Tell = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Leak:
    """Memory that is out, and who asked for it."""

    address: int
    size_bytes: int
    where: str


class GuardedMemory(DeviceMemory):
    """An allocator that remembers who took what and who gave it back.

    Args:
        inner: Where memory comes from.
        tell: Gets each finding; by default it is a warning.
    """

    def __init__(self, inner: DeviceMemory, tell: Tell | None = None) -> None:
        self._inner = inner
        self._tell = tell or _warn
        self._out: dict[int, Leak] = {}
        self._returned: OrderedDict[int, str] = OrderedDict()
        self._lock = threading.RLock()  # the garbage collector may give memory back while memory is taken

    def allocate(self, size: int, alignment: int, flags: int) -> int:
        """Memory, or 0 where there is none."""
        return self._note(self._inner.allocate(size, alignment, flags), size)

    def allocate_async(self, size: int, alignment: int, flags: int, stream: int) -> int:
        """Memory in the order of a stream."""
        return self._note(self._inner.allocate_async(size, alignment, flags, stream), size)

    def reserve(self, size: int) -> int:
        """Memory for what stays."""
        return self._note(self._inner.reserve(size), size)

    def deallocate(self, memory: int) -> bool:
        """Take memory back."""
        return self._check(memory) and self._inner.deallocate(memory)

    def deallocate_async(self, memory: int, stream: int) -> bool:
        """Take memory back in the order of a stream."""
        return self._check(memory) and self._inner.deallocate_async(memory, stream)

    def shrink(self) -> int:
        """Give back what is kept and not used."""
        return self._inner.shrink()

    def list_leaks(self) -> list[Leak]:
        """Everything that is out."""
        with self._lock:
            return list(self._out.values())

    def tell_leaks(self) -> None:
        """Tell of everything that is out."""
        for leak in self.list_leaks():
            self._tell(f"{leak.size_bytes} bytes at {leak.address:#x} were not given back; taken at {leak.where}")

    def _note(self, address: int, size: int) -> int:
        if address:
            with self._lock:
                self._returned.pop(address, None)
                self._out[address] = Leak(address=address, size_bytes=size, where=_find_caller())
        return address

    def _check(self, memory: int) -> bool:
        with self._lock:
            if self._out.pop(memory, None) is not None:
                self._returned[memory] = _find_caller()
                if len(self._returned) > _NUM_REMEMBERED:
                    self._returned.popitem(last=False)
                return True
            before = self._returned.get(memory)
        earlier = f"it came back before at {before}" if before else "nobody was given it"
        self._tell(f"memory at {memory:#x} is given back that is not out: {earlier}; now at {_find_caller()}")
        return False


def _find_caller() -> str:
    """The lines that led here, the nearest first, without those of this module."""
    frames = traceback.extract_stack(limit=_NUM_FRAMES)
    lines = [f"{frame.filename}:{frame.lineno}" for frame in reversed(frames) if frame.filename != __file__]
    return " < ".join(lines[:4])


def _warn(what: str) -> None:
    warnings.warn(f"provider 'cuda': {what}", ResourceWarning, stacklevel=2)
