"""From a planned partition to what the plan stores: ways chosen, kernels compiled, launches in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from dovetail.provider.interfaces import BuildContext, BuildReport, BuiltPartition, NodeReport
from dovetail_cuda.emit.kernels import KernelTable
from dovetail_cuda.emit.memory import BufferTable, place_buffers
from dovetail_cuda.graph.plan import Buffer, PartitionPlan
from dovetail_cuda.graph.regions import Region
from dovetail_cuda.run.payload import VERSION, Launches, LaunchList, write_payload
from dovetail_cuda.tune.chooser import Chooser, ChosenWay
from dovetail_cuda.tune.kit import Kit
from dovetail_cuda.tune.questions import Draft, Place, Task
from dovetail_cuda.tune.tasks import make_task

__all__ = ["EmitOptions", "emit_partition"]


@dataclass(frozen=True, kw_only=True)
class EmitOptions:
    """What code is made with."""

    make_kit: Callable[[PartitionPlan], Kit]
    make_chooser: Callable[[Kit], Chooser]


@dataclass(frozen=True, kw_only=True)
class _Step:
    """One launch of the way that was chosen for a task, over buffers by name."""

    draft: Draft
    places: Sequence[Place]
    layers: Sequence[str]


def emit_partition(plan: PartitionPlan, context: BuildContext, options: EmitOptions) -> BuiltPartition:
    """Compile a partition."""
    kit = options.make_kit(plan)
    return _Emitter(plan, context, kit, options.make_chooser(kit)).emit()


@dataclass
class _Emitter:
    plan: PartitionPlan
    context: BuildContext
    kit: Kit
    chooser: Chooser
    nodes: list[NodeReport] = field(default_factory=list)
    temporaries: dict[str, Buffer] = field(default_factory=dict)

    def emit(self) -> BuiltPartition:
        tasks = [make_task(region, self.kit) for region in self.plan.regions]
        steps = [step for task, chosen in self._choose(tasks) for step in self._make_steps(task, chosen)]
        plan = replace(self.plan, buffers={**self.plan.buffers, **self.temporaries})
        buffers = place_buffers(plan, [[place.buffer for place in step.places] for step in steps])
        kernels = KernelTable(self.chooser.compiled)
        launches = [_make_launch(step, kernels, buffers) for step in steps]
        workspace_bytes = buffers.arena_bytes + max((step.draft.scratch_bytes for step in steps), default=0)
        payload = LaunchList(
            kernels=kernels.records,
            buffers=buffers.records,
            launches=launches,
            output_shapes=[list(self.plan.buffers[name].shape) for name in self.plan.outputs],
            arena_bytes=buffers.arena_bytes,
            workspace_bytes=workspace_bytes,
        )
        return BuiltPartition(
            payload=write_payload(payload),
            weights=self.plan.weights,
            version=VERSION,
            code=kernels.code,
            workspace_bytes=workspace_bytes,
            report=BuildReport(nodes=self.nodes),
        )

    def _choose(self, tasks: Sequence[Task]) -> list[tuple[Task, ChosenWay]]:
        self.chooser.prepare([task.question for task in tasks])
        chosen = []
        for number, task in enumerate(tasks):
            self.context.report(number, len(tasks))
            chosen.append((task, self.chooser.choose(task.question)))
        return chosen

    def _make_steps(self, task: Task, chosen: ChosenWay) -> list[_Step]:
        """The launches of a task, with memory for what its way needs besides."""
        places = dict(task.places)
        for role, temporary in chosen.way.temporaries.items():
            kind = "zeroed" if temporary.is_zeroed else "temporary"
            name = f"{len(self.nodes)}.{role}"
            self.temporaries[name] = Buffer(shape=(temporary.size_bytes,), dtype="uint8", kind=kind)
            places[role] = Place(buffer=name)
        self._report(task.region, chosen.way.name, chosen.time_us)
        layers = list(task.region.layers)
        return [
            _Step(draft=draft, places=[places[role] for role in draft.roles], layers=layers)
            for draft in chosen.way.drafts
        ]

    def _report(self, region: Region, tactic: str, time_us: float | None) -> None:
        layers = list(region.layers)
        made_by = "region" if len(layers) > 1 else ""
        name, op = " + ".join(layers[:4]) or "operand", " ".join(region.ops[:8])
        self.nodes.append(NodeReport(name=name, op=op, layers=layers, made_by=made_by, tactic=tactic, time_us=time_us))


def _make_launch(step: _Step, kernels: KernelTable, buffers: BufferTable) -> Launches:
    offsets = [place.offset for place in step.places]
    numbers = buffers.find([place.buffer for place in step.places])
    return step.draft.make_launch(kernels, numbers, offsets if any(offsets) else [], list(step.layers))
