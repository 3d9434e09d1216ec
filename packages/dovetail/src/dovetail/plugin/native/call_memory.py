"""Memory that a C++ library may read during one call, and that is not its own afterwards.

An engine overwrites such memory when the call has returned and keeps it for a while, so that a plugin that kept a
pointer into it reads `OVERWRITTEN` and not the values that happen to be there. The checker can withdraw access to it
instead, so that the read ends the process.
"""

from __future__ import annotations

import ctypes
import mmap
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, Self, TypeVar, cast

__all__ = [
    "OVERWRITTEN",
    "CallMemory",
    "GuardedMemory",
    "OverwrittenMemory",
    "RetainedMemory",
    "is_overwritten",
    "new_call_memory",
    "use_call_memory",
]

A = TypeVar("A", bound="ctypes.Array[Any] | ctypes.Structure")

OVERWRITTEN: Final = b"\xdb\xdb\xff\x7f"
"""Contents of memory after its call: NaN as float32 and float64, 2147474395 as int32, and no text."""
_MAX_QUARANTINE_BYTES: Final = 2 << 20
"""Bytes of overwritten memory that are kept, the newest; larger blocks are freed at once."""
_BLOCK_OVERHEAD_BYTES: Final = 256
"""Approximate size of the Python objects of a block, which most blocks are smaller than."""


def is_overwritten(data: bytes) -> bool:
    """Return whether some bytes are those of memory whose call has ended.

    >>> is_overwritten(OVERWRITTEN * 2), is_overwritten(b""), is_overwritten(bytes(8))
    (True, False, False)
    """
    size_bytes = len(data)
    return size_bytes >= len(OVERWRITTEN) and data == (OVERWRITTEN * (size_bytes // len(OVERWRITTEN) + 1))[:size_bytes]


class CallMemory(ABC):
    """Memory for the arguments of one call; a context that ends the call."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self.end()

    @abstractmethod
    def allocate(self, size_bytes: int, label: str) -> int:
        """Return the address of new memory, zeroed, with a NUL behind it.

        Args:
            size_bytes: Size of the memory.
            label: Name of the argument in reports, such as ``the data of field 'alpha'``.
        """

    @abstractmethod
    def end(self) -> None:
        """End the call: the library must not use the memory any more."""

    def copy(self, data: bytes, label: str) -> int:
        """Return the address of a copy of some bytes, with a NUL behind it."""
        address = self.allocate(len(data), label)
        ctypes.memmove(address, data, len(data))
        return address

    def place(self, array: A, label: str) -> A:
        """Return an array or structure of the same contents in memory of the call."""
        return cast("A", type(array).from_address(self.copy(bytes(array), label)))


class _Quarantine:
    """Overwritten memory that is kept before it is freed, so that stale reads are reproducible."""

    def __init__(self) -> None:
        self._blocks: deque[Any] = deque()
        self._size_bytes = 0
        self._lock = threading.Lock()

    def add(self, block: Any) -> None:
        """Keep a block, and free the oldest while there are too many."""
        size_bytes = _count_bytes(block)
        if size_bytes > _MAX_QUARANTINE_BYTES:
            return
        with self._lock:
            self._blocks.append(block)
            self._size_bytes += size_bytes
            while self._size_bytes > _MAX_QUARANTINE_BYTES:
                self._size_bytes -= _count_bytes(self._blocks.popleft())


def _count_bytes(block: Any) -> int:
    return ctypes.sizeof(block) + _BLOCK_OVERHEAD_BYTES


_QUARANTINE: Final = _Quarantine()


class OverwrittenMemory(CallMemory):
    """Memory that is overwritten with `OVERWRITTEN` after the call, kept for a while and then freed."""

    def __init__(self) -> None:
        self._blocks: list[Any] = []

    def allocate(self, size_bytes: int, label: str) -> int:
        """Return the address of new memory, zeroed."""
        block = (ctypes.c_char * (size_bytes + 1))()
        self._blocks.append(block)
        return ctypes.addressof(block)

    def place(self, array: A, label: str) -> A:
        """Return the array itself, which is overwritten after the call."""
        self._blocks.append(array)
        return array

    def end(self) -> None:
        """Overwrite all memory of the call."""
        for block in self._blocks:
            size_bytes = max(ctypes.sizeof(block) - 1, 0)  # a text that is read too late still ends
            ctypes.memmove(block, OVERWRITTEN * (size_bytes // len(OVERWRITTEN) + 1), size_bytes)
            _QUARANTINE.add(block)
        self._blocks = []


class RetainedMemory(CallMemory):
    """Memory that stays readable, for a checker that judges stale reads by rules of their own.

    Fields are never changed. Descriptors and addresses, of which every run has several, are replaced by those of the
    next call of the thread, so that memory does not grow.

    Args:
        blocks: Owner of the memory of fields.
        places: Owner of other memory, by thread, label and size.
    """

    def __init__(self, blocks: list[Any], places: dict[tuple[int, str, int], Any]) -> None:
        self._blocks, self._places = blocks, places

    def place(self, array: A, label: str) -> A:
        """Return an array of the same contents where the last call had its own."""
        key = threading.get_ident(), label, ctypes.sizeof(array)
        placed: A = self._places.setdefault(key, array)
        ctypes.memmove(ctypes.addressof(placed), ctypes.addressof(array), ctypes.sizeof(array))
        return placed

    def allocate(self, size_bytes: int, label: str) -> int:
        """Return the address of new memory, zeroed."""
        block = (ctypes.c_char * (size_bytes + 1))()
        self._blocks.append(block)
        return ctypes.addressof(block)

    def end(self) -> None:
        """Keep the memory readable."""


class GuardedMemory(CallMemory):
    """Memory on pages of its own, to which access is withdrawn after the call: a stale read ends the process.

    Args:
        must_guard: Predicate on the label of an argument; memory of the others stays readable.
        labels: List that receives the label of every argument.
    """

    _blocks: Final[list[mmap.mmap]] = []

    def __init__(self, must_guard: Callable[[str], bool], labels: list[str]) -> None:
        self._must_guard, self._labels = must_guard, labels
        self._open: list[tuple[int, int]] = []

    def allocate(self, size_bytes: int, label: str) -> int:
        """Return the address of new pages, zeroed."""
        length = -(-(size_bytes + 1) // mmap.PAGESIZE) * mmap.PAGESIZE
        block = mmap.mmap(-1, length)
        self._blocks.append(block)
        address = ctypes.addressof(ctypes.c_char.from_buffer(block))
        self._labels.append(label)
        if self._must_guard(label):
            self._open.append((address, length))
        return address

    def end(self) -> None:
        """Withdraw access to the guarded pages."""
        protect = ctypes.CDLL(None, use_errno=True).mprotect
        for address, length in self._open:
            if protect(ctypes.c_void_p(address), ctypes.c_size_t(length), 0):
                raise OSError(ctypes.get_errno(), "mprotect")
        self._open = []


_factory: Final[ContextVar[Callable[[], CallMemory]]] = ContextVar("call_memory", default=OverwrittenMemory)


def new_call_memory() -> CallMemory:
    """Return memory for one call, of the kind that is in use."""
    return _factory.get()()


@contextmanager
def use_call_memory(factory: Callable[[], CallMemory]) -> Iterator[None]:
    """Use another kind of memory for calls of this thread."""
    token = _factory.set(factory)
    try:
        yield
    finally:
        _factory.reset(token)
