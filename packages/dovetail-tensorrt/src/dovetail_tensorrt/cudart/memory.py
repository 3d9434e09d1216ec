"""The memory behind the stand-ins: blocks of the host with known ends, and copies that look at these."""

from __future__ import annotations

import bisect
import ctypes
import threading
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["BLOCKS", "Block", "BlockTable", "address_of", "size_of"]

ALIGNMENT: Final = 256


class Block:
    """One allocation."""

    def __init__(self, size_bytes: int) -> None:
        self._memory: npt.NDArray[np.uint8] = np.zeros(size_bytes + ALIGNMENT, np.uint8)
        start = int(self._memory.__array_interface__["data"][0])
        self.address: Final = start + -start % ALIGNMENT
        self.size_bytes: Final = size_bytes

    @property
    def array(self) -> npt.NDArray[np.uint8]:
        """The bytes, as a view."""
        offset = self.address - int(self._memory.__array_interface__["data"][0])
        return self._memory[offset : offset + self.size_bytes]


class BlockTable:
    """All allocations of the process.

    >>> table = BlockTable(); block = table.allocate(16)
    >>> table.fits(block.address + 8, 8), table.fits(block.address + 8, 9), table.free(block.address)
    (True, False, True)
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocks: dict[int, Block] = {}
        self._starts: list[int] = []

    def allocate(self, size_bytes: int) -> Block:
        """A block of zeros."""
        block = Block(size_bytes)
        with self._lock:
            self._blocks[block.address] = block
            bisect.insort(self._starts, block.address)
        return block

    def free(self, address: int) -> bool:
        """Give a block back; False when none begins there."""
        with self._lock:
            if self._blocks.pop(address, None) is None:
                return False
            self._starts.remove(address)
            return True

    def find(self, address: int) -> Block | None:
        """The block that an address lies in."""
        with self._lock:
            index = bisect.bisect_right(self._starts, address) - 1
            block = self._blocks[self._starts[index]] if index >= 0 else None
        return block if block is not None and address < block.address + max(block.size_bytes, 1) else None

    def fits(self, address: int, size_bytes: int) -> bool:
        """Whether so many bytes from an address on are there, as far as it is known.

        Addresses that the engine gave to a plugin lie in no block of this table and are taken as they are.
        """
        if address == 0:
            return size_bytes == 0
        block = self.find(address)
        return block is None or address + size_bytes <= block.address + block.size_bytes

    def copy(self, target: Any, source: Any, size_bytes: int) -> bool:
        """Copy bytes between two places, each an address or an array; False when one of them is too short."""
        places = [(address_of(place), size_of(place)) for place in (target, source)]
        for address, known_bytes in places:
            if known_bytes is not None and size_bytes > known_bytes:
                return False
            if not self.fits(address, size_bytes):
                return False
        ctypes.memmove(places[0][0], places[1][0], size_bytes)
        return True

    def fill(self, target: Any, value: int, size_bytes: int) -> bool:
        """Set bytes; False when there are not so many."""
        if not self.fits(address_of(target), size_bytes):
            return False
        ctypes.memset(address_of(target), value & 0xFF, size_bytes)
        return True


BLOCKS: Final = BlockTable()
"""Every allocation that scripts made through the stand-ins."""


def address_of(place: Any) -> int:
    """The address of memory: a number, anything that converts to one, or an array."""
    if isinstance(place, np.ndarray):
        return int(place.__array_interface__["data"][0])
    if hasattr(place, "__index__") or hasattr(place, "__int__"):
        return int(place)
    if isinstance(place, ctypes._SimpleCData | ctypes.Array | ctypes.Structure):
        return ctypes.addressof(place)
    view = memoryview(place)
    return int(np.frombuffer(view, np.uint8).__array_interface__["data"][0]) if view.nbytes else 0


def size_of(place: Any) -> int | None:
    """How many bytes there are; None where an address alone does not tell."""
    if isinstance(place, np.ndarray):
        return int(place.nbytes)
    if hasattr(place, "__index__") or hasattr(place, "__int__"):
        return None
    return int(ctypes.sizeof(place)) if isinstance(place, ctypes._SimpleCData) else memoryview(place).nbytes
