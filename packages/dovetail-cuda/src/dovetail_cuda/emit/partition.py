"""From a planned partition to what the plan stores: ways chosen, kernels compiled, launches in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from dovetail.provider.interfaces import BuildContext, BuildReport, BuiltPartition, NodeReport
from dovetail_cuda.emit.kernels import KernelTable
from dovetail_cuda.emit.memory import BufferTable, place_buffers
from dovetail_cuda.emit.template import Step, make_amount, make_buffers, make_launch
from dovetail_cuda.graph.plan import Buffer, PartitionPlan, PlannedShapes
from dovetail_cuda.graph.regions import Region
from dovetail_cuda.run.payload import VERSION, Launches, LaunchList
from dovetail_cuda.run.variants import LaunchTemplate, Payload, Variant, write_payload
from dovetail_cuda.tune.chooser import Chooser, ChosenWay
from dovetail_cuda.tune.kit import Kit
from dovetail_cuda.tune.questions import Place, Task
from dovetail_cuda.tune.tasks import make_task

__all__ = ["EmitOptions", "emit_partition"]


@dataclass(frozen=True, kw_only=True)
class EmitOptions:
    """What code is made with."""

    make_kit: Callable[[PartitionPlan], Kit]
    make_chooser: Callable[[Kit], Chooser]


def emit_partition(shapes: PlannedShapes, context: BuildContext, options: EmitOptions) -> BuiltPartition:
    """Compile a partition for all its shapes."""
    emitters = [_Emitter(each.plan, context, options) for each in shapes.variants]
    variants = [
        Variant(values=list(each.values), launches=emitter.emit())
        for each, emitter in zip(shapes.variants, emitters, strict=True)
    ]
    template = None
    if shapes.generic is not None:
        emitters.append(_Emitter(shapes.generic, context, options))
        template = emitters[-1].emit_template(is_open=context.is_open)
    sizes = [variant.launches.workspace_bytes for variant in variants]
    sizes += [] if template is None else [template.arena_bytes or 0]
    payload = Payload(variants=variants, symbols=list(shapes.symbols), template=template)
    return BuiltPartition(
        payload=write_payload(payload),
        weights={name: weight for each in emitters for name, weight in each.plan.weights.items()},
        version=VERSION,
        code={name: code for each in emitters for name, code in each.code.items()},
        workspace_bytes=max(sizes),
        aliases=emitters[0].plan.aliases,
        report=BuildReport(nodes=[node for each in emitters for node in each.nodes]),
    )


class _Emitter:
    """Chooses ways for the regions of a plan, and writes their launches down."""

    def __init__(self, plan: PartitionPlan, context: BuildContext, options: EmitOptions) -> None:
        self.plan = plan
        self.nodes: list[NodeReport] = []
        self.code: dict[str, bytes] = {}
        self._context = context
        self._kit = options.make_kit(plan)
        self._chooser = options.make_chooser(self._kit)
        self._temporaries: dict[str, Buffer] = {}

    def emit(self) -> LaunchList:
        """Launches for the shapes that the plan has."""
        steps, plan = self._plan_steps()
        buffers = place_buffers(plan, [[place.buffer for place in step.places] for step in steps])
        kernels = KernelTable(self._chooser.compiled)
        launches = [_make_launch(step, kernels, buffers) for step in steps]
        self.code = kernels.code
        return LaunchList(
            kernels=kernels.records,
            buffers=buffers.records,
            launches=launches,
            output_shapes=[list(self.plan.buffers[name].shape) for name in self.plan.outputs],
            arena_bytes=buffers.arena_bytes,
            workspace_bytes=buffers.arena_bytes + max((step.draft.scratch_bytes for step in steps), default=0),
        )

    def emit_template(self, *, is_open: bool) -> LaunchTemplate:
        """Launches for sizes that vary."""
        steps, plan = self._plan_steps()
        kernels = KernelTable(self._chooser.compiled)
        table, arena_bytes = make_buffers(plan, [[place.buffer for place in step.places] for step in steps], is_open)
        numbers = {name: number for number, name in enumerate(table)}
        launches = [make_launch(step, kernels, numbers) for step in steps]
        self.code = kernels.code
        return LaunchTemplate(
            kernels=kernels.records,
            buffers=list(table.values()),
            launches=launches,
            output_shapes=[[make_amount(n) for n in self.plan.buffers[name].shape] for name in self.plan.outputs],
            arena_bytes=arena_bytes,
        )

    def _plan_steps(self) -> tuple[list[Step], PartitionPlan]:
        """The launches in order, and the plan with the memory that they need besides."""
        tasks = [make_task(region, self._kit) for region in self.plan.regions]
        steps = [step for task, chosen in self._choose(tasks) for step in self._make_steps(task, chosen)]
        return steps, replace(self.plan, buffers={**self.plan.buffers, **self._temporaries})

    def _choose(self, tasks: Sequence[Task]) -> list[tuple[Task, ChosenWay]]:
        self._chooser.prepare([task.question for task in tasks])
        chosen = []
        for number, task in enumerate(tasks):
            self._context.report(number, len(tasks))
            chosen.append((task, self._chooser.choose(task.question)))
        return chosen

    def _make_steps(self, task: Task, chosen: ChosenWay) -> list[Step]:
        """The launches of a task, with memory for what its way needs besides."""
        places = dict(task.places)
        for role, temporary in chosen.way.temporaries.items():
            kind = "zeroed" if temporary.is_zeroed else "temporary"
            name = f"{len(self.nodes)}.{role}"
            self._temporaries[name] = Buffer(shape=(temporary.size_bytes,), dtype="uint8", kind=kind)
            places[role] = Place(buffer=name)
        self._report(task.region, chosen.way.name, chosen.time_us)
        layers = list(task.region.layers)
        return [
            Step(draft=draft, places=[places[role] for role in draft.roles], layers=layers)
            for draft in chosen.way.drafts
        ]

    def _report(self, region: Region, tactic: str, time_us: float | None) -> None:
        layers = list(region.layers)
        made_by = "region" if len(layers) > 1 else ""
        name, op = " + ".join(layers[:4]) or "operand", " ".join(region.ops[:8])
        self.nodes.append(NodeReport(name=name, op=op, layers=layers, made_by=made_by, tactic=tactic, time_us=time_us))


def _make_launch(step: Step, kernels: KernelTable, buffers: BufferTable) -> Launches:
    offsets = [place.offset for place in step.places]
    numbers = buffers.find([place.buffer for place in step.places])
    return step.draft.make_launch(kernels, numbers, offsets if any(offsets) else [], list(step.layers))
