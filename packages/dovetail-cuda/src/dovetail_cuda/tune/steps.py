"""Ways that are several regions one after the other, for what can also be one kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dovetail_cuda.compile.request import KernelRequest
from dovetail_cuda.graph.regions import ElementRegion, ProductRegion, Region, Stored
from dovetail_cuda.lower.tensors import refuse
from dovetail_cuda.lower.types import size_of
from dovetail_cuda.run.payload import Launches
from dovetail_cuda.tune.elements import make_element_task
from dovetail_cuda.tune.kit import Kit
from dovetail_cuda.tune.products import make_product_task
from dovetail_cuda.tune.questions import Draft, Kernels, Task, Temporary, Way

__all__ = ["ShiftedDraft", "list_step_ways"]


@dataclass(frozen=True, kw_only=True)
class ShiftedDraft(Draft):
    """A launch over parts of buffers: bytes are left out at the start of each."""

    draft: Draft
    shifts: tuple[int, ...]

    @property
    def requests(self) -> Sequence[KernelRequest]:
        """Those of the launch."""
        return self.draft.requests

    @property
    def scratch_bytes(self) -> int:
        """That of the launch."""
        return self.draft.scratch_bytes

    @property
    def rank(self) -> int | None:
        """That of the launch."""
        return self.draft.rank

    @property
    def is_complete(self) -> bool:
        """Whether the launch is."""
        return self.draft.is_complete

    def make_launch(self, kernels: Kernels, buffers: list[int], offsets: list[int], layers: list[str]) -> Launches:
        """The launch with the bytes left out."""
        given = offsets or [0] * len(buffers)
        shifted = [one + other for one, other in zip(given, self.shifts, strict=True)]
        return self.draft.make_launch(kernels, buffers, shifted if any(shifted) else [], layers)


def list_step_ways(steps: Sequence[Region], kit: Kit, roles: Mapping[str, str], tolerance: float) -> list[Way]:
    """Steps one after the other, each product by the first way of the library, and by a tile of ours.

    Args:
        steps: What is done.
        kit: What ways are made with.
        roles: The role of each buffer that the whole reads or writes; all others are between steps.
        tolerance: What results may be off more than their types say.
    """
    tasks = [_make_step_task(step, kit) for step in steps]
    ways = [task.question.make_ways() for task in tasks]
    chosen = {"steps": [each[0] for each in ways], "steps in tiles": [_find_tile(each) for each in ways]}
    between = {
        name: Temporary(size_bytes=size) for step in steps for name, size in _list_results(step) if name not in roles
    }
    made = {name: _join_steps(tasks, picked, roles) for name, picked in chosen.items()}
    return [
        replace(way, name=name, temporaries={**way.temporaries, **between}, tolerance=tolerance)
        for name, way in made.items()
    ]


def _make_step_task(step: Region, kit: Kit) -> Task:
    if isinstance(step, ProductRegion):
        return make_product_task(step, kit)
    if isinstance(step, ElementRegion):
        return make_element_task(step, kit)
    raise refuse("there is no such step")


def _find_tile(ways: Sequence[Way]) -> Way:
    """A tile of middling size, or whatever there is."""
    tiles = [way for way in ways if way.name.startswith("tile")]
    return tiles[min(2, len(tiles) - 1)] if tiles else ways[0]


def _join_steps(tasks: Sequence[Task], ways: Sequence[Way], roles: Mapping[str, str]) -> Way:
    """One way of several: what lies between them is a temporary."""
    drafts: list[Draft] = []
    temporaries: dict[str, Temporary] = {}
    for number, (task, way) in enumerate(zip(tasks, ways, strict=True)):
        places = {role: roles.get(place.buffer, place.buffer) for role, place in task.places.items()}
        places |= {role: f"{number}.{role}" for role in way.temporaries}
        temporaries |= {places[role]: each for role, each in way.temporaries.items()}
        for draft in way.drafts:
            shifts = tuple(task.places[role].offset if role in task.places else 0 for role in draft.roles)
            drafts.append(ShiftedDraft(roles=tuple(places[role] for role in draft.roles), draft=draft, shifts=shifts))
    return Way(name="steps", drafts=drafts, temporaries=temporaries)


def _list_results(step: Region) -> list[tuple[str, int]]:
    """What a step writes, and how many bytes."""
    if isinstance(step, ProductRegion):
        stored: Sequence[Stored] = (step.stored,)
    else:
        stored = step.stored if isinstance(step, ElementRegion) else ()
    return [(each.buffer, (each.place.bounds[1] + 1) * size_of(each.dtype)) for each in stored]
