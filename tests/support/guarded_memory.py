"""Memory with a page behind it that nobody may touch, and runs by address over such memory.

A run that reads or writes one byte past what the caller was told ends the process, so these runs belong in a process
of their own.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import dovetail as dt
from dovetail.formats import size_bytes

__all__ = ["SIZINGS", "GuardedMemory", "run_by_address"]

_LIBC = ctypes.CDLL(None, use_errno=True)
_MAX_BYTES = 1 << 28


class GuardedMemory:
    """So many bytes that end where a page without access begins."""

    def __init__(self, size_bytes: int) -> None:
        if not 0 <= size_bytes <= _MAX_BYTES:
            raise MemoryError(f"{size_bytes} bytes")
        pages = -(-max(size_bytes, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
        self._map = mmap.mmap(-1, pages + mmap.PAGESIZE)
        begin = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        if _LIBC.mprotect(ctypes.c_void_p(begin + pages), ctypes.c_size_t(mmap.PAGESIZE), 0):
            raise OSError(ctypes.get_errno(), "mprotect")
        self.size_bytes = size_bytes
        self.address = begin + pages - size_bytes

    def fill(self, data: bytes) -> None:
        """Put bytes at the start."""
        ctypes.memmove(self.address, data, min(len(data), self.size_bytes))

    def read(self) -> bytes:
        """All bytes."""
        return ctypes.string_at(self.address, self.size_bytes)


class GuardedAllocator(dt.IOutputAllocator):
    """Gives an output just what is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[GuardedMemory] = []
        self.shape: tuple[int, ...] | None = None

    def reallocate_output_async(self, name: str, memory: int, size: int, alignment: int, stream: int) -> int:
        self.given.append(GuardedMemory(size))
        return self.given[-1].address

    def notify_shape(self, name: str, shape: Any) -> None:
        self.shape = tuple(shape)


def _bytes_of(engine: Any, name: str, shape: Sequence[int]) -> int | None:
    if min(shape, default=0) < 0:
        return None
    return size_bytes(shape, engine.get_tensor_dtype(name), engine.get_tensor_format(name))


def _by_engine(engine: Any, context: Any, name: str) -> int | None:
    return _bytes_of(engine, name, engine.get_tensor_shape(name))


def _by_context(engine: Any, context: Any, name: str) -> int | None:
    return _bytes_of(engine, name, context.get_tensor_shape(name))


def _by_bound(engine: Any, context: Any, name: str) -> int | None:
    size = context.get_max_output_size(name)
    return size if size >= 0 else None


def _by_allocator(engine: Any, context: Any, name: str) -> int | None:
    return None


SIZINGS: Mapping[str, Callable[[Any, Any, str], int | None]] = {
    "engine.get_tensor_shape": _by_engine,
    "context.get_tensor_shape": _by_context,
    "get_max_output_size": _by_bound,
    "output allocator": _by_allocator,
}
"""Every way in which a caller learns how much memory an output takes; None where it says nothing."""


def run_by_address(engine: Any, context: Any, arrays: Sequence[Any], sizing: str) -> dict[str, bytes]:
    """Run over memory that is as large as the engine says and not a byte larger; the bytes of the outputs."""
    names = [engine.get_tensor_name(i) for i in range(engine.num_io_tensors)]
    inputs = [n for n in names if engine.get_tensor_mode(n) is dt.TensorIOMode.INPUT]
    memory = {name: _bind_input(engine, context, name, a) for name, a in zip(inputs, arrays, strict=True)}
    allocators: dict[str, GuardedAllocator] = {}
    for name in names[len(inputs) :]:
        source = engine.get_aliased_input_tensor(name)
        if source is not None:
            SIZINGS[sizing](engine, context, name)
            memory[name] = memory[source]
        else:
            size = SIZINGS[sizing](engine, context, name)
            memory[name] = GuardedMemory(size or 0)
            if size is None:
                allocators[name] = GuardedAllocator()
        context.set_output_allocator(name, allocators.get(name))
        context.set_tensor_address(name, memory[name].address)
    context.execute_async_v3(0)
    ends = {name: allocator.given[-1] for name, allocator in allocators.items() if allocator.given}
    return {name: ends.get(name, memory[name]).read() for name in names[len(inputs) :]}


def _bind_input(engine: Any, context: Any, name: str, value: Any) -> GuardedMemory:
    array = np.asarray(value, order="C")
    context.set_input_shape(name, array.shape)
    size = _by_context(engine, context, name)
    memory = GuardedMemory(array.nbytes if size is None else size)
    memory.fill(array.tobytes())
    context.set_tensor_address(name, memory.address)
    return memory
