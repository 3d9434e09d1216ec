"""The blocks that planned values and workspaces of one context lie in, one for each memory.

With a profile offsets are fixed; an open engine plans them whenever shapes change, and its blocks only grow.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final

from dovetail.allocators import IGpuAllocator
from dovetail.errors import InputError
from dovetail.formats import packed_shape
from dovetail.plan.lifetimes import value_lifetimes
from dovetail.plan.manifest import ProgramRecord
from dovetail.plan.workspaces import WorkspaceGroup, find_workspaces, walk_steps
from dovetail.provider.memory.arena import Span, plan_offsets
from dovetail.runtime.devices.streams import ContextDevices
from dovetail.runtime.memory.blocks import DeviceBlock, HostBlock
from dovetail.runtime.steps.frame import Shape, Workspace
from dovetail.types import TensorFormat

__all__ = ["Arena", "make_arenas"]

_MAX_CACHED_SHAPES: Final = 64
"""Placements an open engine remembers; a caller with ever new shapes must not make it grow."""


def make_arenas(
    program: ProgramRecord,
    placed: Sequence[int],
    devices: ContextDevices,
    *,
    is_open: bool,
    allocator: IGpuAllocator | None,
) -> list[Arena]:
    """The arenas of a program: the host's, and one for each device that has planned values or workspaces."""
    numbers = range(len(list(walk_steps(program)))) if is_open else None  # any step may turn out to need one
    groups: dict[str, list[WorkspaceGroup]] = {}
    for group in find_workspaces(program, numbers):
        groups.setdefault(group.memory, []).append(group)
    by_memory: dict[str, list[int]] = {"": [], **{memory: [] for memory in groups}}
    for index in placed:
        if program.values[index].kind == "planned":
            by_memory.setdefault(program.values[index].memory, []).append(index)
    lifetimes = value_lifetimes(program)
    return [
        Arena(
            program,
            memory,
            planned,
            groups.get(memory, []),
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
        memory: str,
        planned: Sequence[int],
        workspaces: Sequence[WorkspaceGroup],
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
        self._workspaces = workspaces
        self._offsets_in_plan = [step.workspace_offset for _, _, step in walk_steps(program)]
        self._cache: dict[Hashable, tuple[list[int], int]] = {}
        if not is_open:
            self._block.reserve(program.arenas.get(memory, 0) if memory else program.arena_bytes)

    @property
    def size_bytes(self) -> int:
        """How much memory it takes now."""
        return self._block.size_bytes

    def close(self) -> None:
        """Give its memory back."""
        self._block.close()

    def find_size_bytes(
        self, shapes: Sequence[Shape | None], dtypes: Sequence[Any], scratch: Sequence[int], key: Hashable
    ) -> int:
        """How much memory it would take for values of these shapes; the arguments are those of ``reserve``."""
        if not self._is_open:
            return self.size_bytes
        physical = [self._physical(i, shapes) for i in self._planned]
        sizes = [self._block.size_of(s, dtypes[i]) for i, s in zip(self._planned, physical, strict=True)]
        return self._plan(sizes, scratch, key)[1]

    def reserve(
        self, shapes: Sequence[Shape | None], dtypes: Sequence[Any], scratch: Sequence[int], key: Hashable
    ) -> bool:
        """Have room for values of these shapes; True when the block moved, and views of it are not valid any more.

        Args:
            shapes: Of all values of the program.
            dtypes: Of all values.
            scratch: How much scratch memory each step needs, as ``walk_steps`` counts.
            key: What sizes follow from.
        """
        physical = [self._physical(i, shapes) for i in self._planned]
        sizes = [self._block.size_of(s, dtypes[i]) for i, s in zip(self._planned, physical, strict=True)]
        if not self._is_open:
            self._check_room(sizes)
            return False
        return self._block.reserve(self._plan(sizes, scratch, key)[1])

    def place(self, values: list[Any], shapes: Sequence[Shape | None], dtypes: Sequence[Any], key: Hashable) -> None:
        """Put a view among the values for each that lies in it; there is room for them."""
        offsets = self._offsets(key)
        for index, offset in zip(self._planned, offsets, strict=False):
            if self._program.values[index].alias is None:
                values[index] = self._block.view(offset, self._physical(index, shapes), dtypes[index])
        for index in self._planned:
            alias = self._program.values[index].alias
            if alias is not None and values[alias] is not None:
                values[index] = self._block.share(values[alias], self._physical(index, shapes), dtypes[index])

    def place_workspaces(self, scratch: Sequence[int], key: Hashable) -> dict[int, Workspace]:
        """The scratch memory of each step that has some in it, by the number of the step."""
        found = {}
        offsets = self._offsets(key)[len(self._planned) :] if self._is_open else [0] * len(self._workspaces)
        for group, planned in zip(self._workspaces, offsets, strict=True):
            for number in group.steps:
                offset = planned if self._is_open else self._offsets_in_plan[number] or 0
                if scratch[number]:
                    found[number] = Workspace(self._block.address + offset, scratch[number])
        return found

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

    def _offsets(self, key: Hashable) -> list[int]:
        if not self._is_open:
            return [self._program.values[i].offset or 0 for i in self._planned]
        return self._cache[key][0]

    def _plan(self, sizes: list[int], scratch: Sequence[int], key: Hashable) -> tuple[list[int], int]:
        """Offsets of values and then of workspaces, and the size of the block, for these sizes."""
        if key not in self._cache:
            if len(self._cache) >= _MAX_CACHED_SHAPES:
                self._cache.clear()
            spans = [Span(n, *self._spans[i]) for i, n in zip(self._planned, sizes, strict=True)]
            needs = [(max(scratch[n] for n in group.steps), group.position) for group in self._workspaces]
            spans += [Span(need, position, position) for need, position in needs if need]
            offsets, size = plan_offsets(spans)
            places = iter(offsets[len(sizes) :])
            self._cache[key] = ([*offsets[: len(sizes)], *(next(places) if need else 0 for need, _ in needs)], size)
        return self._cache[key]
