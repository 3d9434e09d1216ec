"""The blocks that planned values of one context lie in, one for each memory.

With a profile offsets are fixed; an open engine plans them whenever shapes change, and its blocks only grow.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from dovetail.allocators import IGpuAllocator
from dovetail.errors import InputError, ResourceError
from dovetail.formats import packed_shape
from dovetail.plan.lifetimes import value_lifetimes
from dovetail.plan.manifest import ProgramRecord
from dovetail.provider.arena import ALIGNMENT_BYTES, Span, aligned_empty, plan_offsets
from dovetail.runtime.bind.arrays import array_at
from dovetail.runtime.devices.streams import ContextDevices
from dovetail.runtime.memory.blocks import DeviceBlock
from dovetail.runtime.steps.base import share_memory
from dovetail.runtime.steps.frame import Shape
from dovetail.types import TensorFormat

__all__ = ["Arena", "make_arenas"]

_MAX_CACHED_SHAPES: Final = 64
"""Placements an open engine remembers; a caller with ever new shapes must not make it grow."""


class HostBlock:
    """Memory of the process, from the caller's allocator where there is one: what ``DeviceBlock`` is for devices."""

    def __init__(self, allocator: IGpuAllocator | None) -> None:
        self._allocator = allocator
        self.size_bytes = 0
        self._memory = np.empty(0, np.uint8)
        self._finalizer: weakref.finalize[Any, Any] | None = None

    def reserve(self, size_bytes: int) -> bool:
        """Have at least so many bytes, at an aligned start; True when the block moved."""
        if size_bytes <= self.size_bytes:
            return False
        self._memory = aligned_empty(size_bytes) if self._allocator is None else self._allocate(size_bytes)
        self.size_bytes = size_bytes
        return True

    def _allocate(self, size_bytes: int) -> Any:
        if self._finalizer is not None:
            self._finalizer()
        allocator = self._allocator
        assert allocator is not None  # noqa: S101 - the caller looked
        address = int(allocator.allocate(size_bytes, ALIGNMENT_BYTES, 0) or 0)
        if not address:
            raise ResourceError(f"the allocator of the runtime gave no memory for {size_bytes} bytes")
        self._finalizer = weakref.finalize(self, allocator.deallocate, address)
        return array_at(address, (size_bytes,), np.dtype(np.uint8))

    def close(self) -> None:
        """Give memory of the caller's allocator back; views are then not valid any more."""
        if self._finalizer is not None:
            self._memory, self.size_bytes = np.empty(0, np.uint8), 0
            self._finalizer()

    def view(self, offset: int, shape: Shape, dtype: np.dtype[Any]) -> Any:
        """An array in it."""
        return np.ndarray(shape, dtype, self._memory, offset)

    def share(self, array: Any, shape: Shape, dtype: np.dtype[Any]) -> Any:
        """All of an array that lies in it, with another shape."""
        return share_memory(array, shape, dtype)


def make_arenas(
    program: ProgramRecord,
    placed: Sequence[int],
    devices: ContextDevices,
    *,
    is_open: bool,
    allocator: IGpuAllocator | None,
) -> list[Arena]:
    """The arenas of a program: the host's, and one for each device that has planned values in it."""
    by_memory: dict[str, list[int]] = {"": []}
    for index in placed:
        if program.values[index].kind == "planned":
            by_memory.setdefault(program.values[index].memory, []).append(index)
    lifetimes = value_lifetimes(program)
    return [
        Arena(
            program,
            planned,
            lifetimes,
            _make_block(memory, devices) if memory else HostBlock(allocator),
            is_open=is_open,
        )
        for memory, planned in by_memory.items()
    ]


def _make_block(memory: str, devices: ContextDevices) -> DeviceBlock:
    provider = devices.providers[memory]
    return DeviceBlock(provider, stream=devices.stream(provider))


class Arena:
    """The block that planned values of one memory lie in."""

    def __init__(
        self,
        program: ProgramRecord,
        planned: Sequence[int],
        lifetimes: Mapping[int, tuple[int, int]],
        block: HostBlock | DeviceBlock,
        *,
        is_open: bool,
    ) -> None:
        self._program = program
        self._planned = planned
        self._is_open = is_open
        self._block = block
        self._spans = lifetimes
        self._cache: dict[tuple[int, ...], tuple[list[int], int]] = {}
        if not is_open:
            memory = program.values[planned[0]].memory if planned else ""
            self._block.reserve(program.arenas.get(memory, 0) if memory else program.arena_bytes)

    @property
    def size_bytes(self) -> int:
        """How much memory it takes now."""
        return self._block.size_bytes

    def close(self) -> None:
        """Give its memory back."""
        self._block.close()

    def reserve(self, shapes: Sequence[Shape | None], dtypes: Sequence[Any], key: tuple[int, ...]) -> bool:
        """Have room for values of these shapes; True when the block moved, and views of it are not valid any more."""
        physical = [self._physical(i, shapes) for i in self._planned]
        sizes = [math.prod(s) * dtypes[i].itemsize for i, s in zip(self._planned, physical, strict=True)]
        if not self._is_open:
            self._check_room(sizes)
            return False
        return self._block.reserve(self._plan(sizes, key)[1])

    def place(
        self, values: list[Any], shapes: Sequence[Shape | None], dtypes: Sequence[Any], key: tuple[int, ...]
    ) -> None:
        """Put a view among the values for each that lies in it; there is room for them."""
        offsets = self._offsets(key)
        for index, offset in zip(self._planned, offsets, strict=True):
            if self._program.values[index].alias is None:
                values[index] = self._block.view(offset, self._physical(index, shapes), dtypes[index])
        for index in self._planned:
            alias = self._program.values[index].alias
            if alias is not None and values[alias] is not None:
                values[index] = self._block.share(values[alias], self._physical(index, shapes), dtypes[index])

    def _check_room(self, sizes: list[int]) -> None:
        """Shapes in the profile fit; contents of shape inputs are only known now."""
        for index, size in zip(self._planned, sizes, strict=True):
            value = self._program.values[index]
            if value.size_bytes is not None and size > value.size_bytes:
                raise InputError(
                    "these inputs give a tensor a shape that the plan has no room for",
                    where=f"value '{value.name}'",
                    expected=f"at most {value.size_bytes} bytes",
                    got=size,
                    fix="stay in the profile, with the values of shape inputs too",
                )

    def _physical(self, index: int, shapes: Sequence[Shape | None]) -> Shape:
        shape, layout = shapes[index] or (), self._program.values[index].format
        return shape if layout == "LINEAR" else tuple(packed_shape(shape, TensorFormat[layout]))

    def _offsets(self, key: tuple[int, ...]) -> list[int]:
        if not self._is_open:
            return [self._program.values[i].offset or 0 for i in self._planned]
        return self._cache[key][0]

    def _plan(self, sizes: list[int], key: tuple[int, ...]) -> tuple[list[int], int]:
        """Offsets and the size of the block for these sizes."""
        if key not in self._cache:
            if len(self._cache) >= _MAX_CACHED_SHAPES:
                self._cache.clear()
            spans = [Span(n, *self._spans[i]) for i, n in zip(self._planned, sizes, strict=True)]
            self._cache[key] = plan_offsets(spans)
        return self._cache[key]
