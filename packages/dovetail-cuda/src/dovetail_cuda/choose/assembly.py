"""From ways that are chosen to launches in order over buffers that have their places."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dovetail_cuda.choose.memory import BufferTable, place_buffers
from dovetail_cuda.choose.records import OpenBuffer, OpenLaunches, PlaceRecord, TaskRecord, UsedKernels, WayRecord
from dovetail_cuda.run.payload import Launches, LaunchList

__all__ = ["assemble"]


def assemble(open_launches: OpenLaunches, chosen: Sequence[int]) -> LaunchList:
    """The launches of a partition.

    Args:
        open_launches: Its tasks, with all their ways.
        chosen: For each question the number of its way.
    """
    buffers, used, steps, scratch = list(open_launches.buffers), UsedKernels(open_launches.kernels), [], [0]
    for task in open_launches.tasks:
        way = open_launches.questions[task.question].ways[chosen[task.question]]
        scratch.append(way.scratch_bytes)
        places = [*task.places, *_add_temporaries(way, buffers)]
        steps += [_place(launch, places, task) for launch in used.renumber(way.launches)]
    table = place_buffers(buffers, [step.buffers for step in steps])
    return LaunchList(
        kernels=used.records,
        buffers=table.records,
        launches=[_number(step, table) for step in steps],
        output_shapes=open_launches.output_shapes,
        arena_bytes=table.arena_bytes,
        workspace_bytes=table.arena_bytes + max(scratch),
    )


def _add_temporaries(way: WayRecord, buffers: list[OpenBuffer]) -> list[PlaceRecord]:
    """Memory of its own for what a way needs besides."""
    places = []
    for each in way.temporaries:
        places.append(PlaceRecord(buffer=len(buffers)))
        buffers.append(OpenBuffer(kind="zeroed" if each.is_zeroed else "temporary", size_bytes=each.size_bytes))
    return places


def _place(launch: Launches, places: Sequence[PlaceRecord], task: TaskRecord) -> Launches:
    """A launch over the buffers of a task."""
    given = launch.offsets or [0] * len(launch.buffers)
    offsets = [places[role].offset + offset for role, offset in zip(launch.buffers, given, strict=True)]
    return msgspec.structs.replace(
        launch,
        buffers=[places[role].buffer for role in launch.buffers],
        offsets=offsets if any(offsets) else [],
        layers=task.note.layers,
    )


def _number(launch: Launches, table: BufferTable) -> Launches:
    return msgspec.structs.replace(launch, buffers=[table.find(number) for number in launch.buffers])
