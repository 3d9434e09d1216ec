"""From a planned partition to what the plan stores: ways chosen, kernels compiled, launches in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from dovetail.loggers import Severity
from dovetail.provider.interfaces import BuildContext, BuildReport, BuiltPartition, CarriedCandidates, NodeReport
from dovetail_cuda.choose.assembly import assemble
from dovetail_cuda.choose.carried import CandidatePayload, count_ways, limit_candidates, pack_candidates
from dovetail_cuda.choose.records import (
    NodeNote,
    OpenBuffer,
    OpenLaunches,
    PlaceRecord,
    QuestionRecord,
    TaskRecord,
    list_code,
)
from dovetail_cuda.emit.kernels import KernelTable
from dovetail_cuda.emit.reports import describe_region
from dovetail_cuda.emit.template import Step, make_amount, make_buffers, make_launch
from dovetail_cuda.graph.plan import Buffer, PartitionPlan, PlannedShapes
from dovetail_cuda.graph.regions import Region
from dovetail_cuda.node_names import name_node
from dovetail_cuda.run.payload import VERSION, LaunchList
from dovetail_cuda.run.variants import LaunchTemplate, Payload, Variant, count_workspace, write_payload
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
    emitted = [emitter.emit() for emitter in emitters]
    generic = None if shapes.generic is None else _Emitter(shapes.generic, context, options)
    payload = Payload(
        variants=[
            Variant(values=list(each.values), launches=made.launches)
            for each, made in zip(shapes.variants, emitted, strict=True)
        ],
        symbols=list(shapes.symbols),
        template=None if generic is None else generic.emit_template(is_open=context.is_open),
    )
    everything = [*emitters, *([] if generic is None else [generic])]
    code = {name: code for each in everything for name, code in each.code.items()}
    return BuiltPartition(
        payload=write_payload(payload),
        weights={name: weight for each in everything for name, weight in each.plan.weights.items()},
        version=VERSION,
        code=code,
        workspace_bytes=count_workspace(payload),
        aliases=everything[0].plan.aliases,
        report=BuildReport(nodes=_join_nodes(everything)),
        candidates=_carry(emitters, emitted, generic, context),
    )


def _join_nodes(emitters: Sequence[_Emitter]) -> list[NodeReport]:
    """The nodes for all shapes, one set after the other."""
    nodes: list[NodeReport] = []
    for emitter in emitters:
        first = len(nodes)
        nodes += [replace(node, inputs=[first + number for number in node.inputs]) for node in emitter.nodes]
    return nodes


def _carry(
    emitters: Sequence[_Emitter],
    emitted: Sequence[_EmittedLaunches],
    generic: _Emitter | None,
    context: BuildContext,
) -> CarriedCandidates | None:
    """The candidates of all shapes, where the build asks for them."""
    if not context.candidate_bytes or not emitters:
        return None
    payload = CandidatePayload(
        capability=emitters[0].kit.capability,
        variants=[each.open_launches for each in emitted],
        others=[] if generic is None else [_note(node) for node in generic.nodes],
    )
    code = {name: code for each in emitters for name, code in each.chooser.kernels.code.items()}
    kept = limit_candidates(payload, [each.chosen for each in emitted], code, context.candidate_bytes)
    left_out, count = count_ways(payload) - count_ways(kept), count_ways(payload)
    if left_out:
        text = f"{left_out} of {count} candidates are not carried: the limit is {context.candidate_bytes} bytes"
        context.logger.log(Severity.WARNING, text)
    present = {name for each in (*emitters, *([] if generic is None else [generic])) for name in each.code}
    return pack_candidates(kept, code, present)


def _note(node: NodeReport) -> NodeNote:
    return NodeNote(name=node.name, op=node.op, layers=list(node.layers), made_by=node.made_by, tactic=node.tactic)


@dataclass(frozen=True, kw_only=True)
class _EmittedLaunches:
    """Launches for one set of shapes, and what they were chosen from."""

    launches: LaunchList
    open_launches: OpenLaunches
    chosen: Sequence[int]
    """For each question the number of its way."""


class _Emitter:
    """Chooses ways for the regions of a plan, and writes their launches down."""

    def __init__(self, plan: PartitionPlan, context: BuildContext, options: EmitOptions) -> None:
        self.plan = plan
        self.kit = options.make_kit(plan)
        self.chooser = options.make_chooser(self.kit)
        self.nodes: list[NodeReport] = []
        self.code: dict[str, bytes] = {}
        self._context = context
        self._temporaries: dict[str, Buffer] = {}
        self._makers: dict[str, int] = {}
        """Buffer -> the node of the report that makes it."""

    def emit(self) -> _EmittedLaunches:
        """Launches for the shapes that the plan has."""
        tasks = self._choose([make_task(region, self.kit) for region in self.plan.regions])
        open_launches, chosen = self._describe(tasks)
        launches = assemble(open_launches, chosen)
        code = self.chooser.kernels.code
        self.code = {name: code[name] for name in list_code(launches.launches, launches.kernels)}
        return _EmittedLaunches(launches=launches, open_launches=open_launches, chosen=chosen)

    def emit_template(self, *, is_open: bool) -> LaunchTemplate:
        """Launches for sizes that vary."""
        steps, plan = self._plan_steps()
        kernels = KernelTable(self.chooser.compiled)
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

    def _choose(self, tasks: Sequence[Task]) -> list[tuple[Task, ChosenWay]]:
        self.chooser.prepare([task.question for task in tasks])
        chosen = []
        for number, task in enumerate(tasks):
            self._context.report(number, len(tasks))
            chosen.append((task, self.chooser.choose(task)))
            self._report(task.region, chosen[-1][1])
        return chosen

    def _report(self, region: Region, chosen: ChosenWay) -> None:
        name, tactic = name_node(list(region.layers)), chosen.way.name
        node = describe_region(region, self.plan, name=name, tactic=tactic, time_us=chosen.time_us)
        self.nodes.append(replace(node, inputs=self._link(region)))

    def _link(self, region: Region) -> list[int]:
        """The nodes that make what a region reads: the first region that has a buffer writes it."""
        given = {*self.plan.inputs, *self.plan.weights}
        mine = [name for name in region.buffers if name not in given]
        found = sorted({self._makers[name] for name in mine if name in self._makers})
        for name in mine:
            self._makers.setdefault(name, len(self.nodes))
        return found

    # one set of shapes

    def _describe(self, tasks: Sequence[tuple[Task, ChosenWay]]) -> tuple[OpenLaunches, list[int]]:
        """The tasks as records, and for each question the number of the way that was chosen."""
        questions: dict[str, QuestionRecord] = {}
        picks: dict[str, int] = {}
        for task, chosen in tasks:
            if task.question.text not in questions:
                record = questions[task.question.text] = self.chooser.describe(task)
                picks[record.text] = [way.name for way in record.ways].index(chosen.way.name)
        open_launches = OpenLaunches(
            kernels=self.chooser.kernels.records,
            buffers=[self._describe_buffer(name) for name in self.plan.buffers],
            questions=list(questions.values()),
            tasks=self._describe_tasks(tasks, list(questions)),
            output_shapes=[list(self.plan.buffers[name].shape) for name in self.plan.outputs],
            is_cold=self.kit.is_cold,
        )
        return open_launches, list(picks.values())

    def _describe_tasks(self, tasks: Sequence[tuple[Task, ChosenWay]], questions: list[str]) -> list[TaskRecord]:
        numbers = {name: number for number, name in enumerate(self.plan.buffers)}
        return [
            TaskRecord(
                question=questions.index(task.question.text),
                places=[PlaceRecord(buffer=numbers[each.buffer], offset=each.offset) for each in task.places.values()],
                note=_note(replace(node, tactic="")),
            )
            for (task, _), node in zip(tasks, self.nodes, strict=True)
        ]

    def _describe_buffer(self, name: str) -> OpenBuffer:
        buffer = self.plan.buffers[name]
        numbers = {"input": self.plan.inputs, "output": self.plan.outputs}.get(buffer.kind, ())
        return OpenBuffer(
            kind=buffer.kind,
            size_bytes=buffer.size_bytes,
            number=list(numbers).index(name) if numbers else 0,
            name=name if buffer.kind == "weight" else "",
        )

    # sizes that vary

    def _plan_steps(self) -> tuple[list[Step], PartitionPlan]:
        """The launches in order, and the plan with the memory that they need besides."""
        tasks = self._choose([make_task(region, self.kit) for region in self.plan.regions])
        steps = [step for n, (task, chosen) in enumerate(tasks) for step in self._make_steps(n, task, chosen)]
        return steps, replace(self.plan, buffers={**self.plan.buffers, **self._temporaries})

    def _make_steps(self, number: int, task: Task, chosen: ChosenWay) -> list[Step]:
        """The launches of a task, with memory for what its way needs besides."""
        places = dict(task.places)
        for role, temporary in chosen.way.temporaries.items():
            kind = "zeroed" if temporary.is_zeroed else "temporary"
            name = f"{number}.{role}"
            self._temporaries[name] = Buffer(shape=(temporary.size_bytes,), dtype="uint8", kind=kind)
            places[role] = Place(buffer=name)
        layers = list(task.region.layers)
        return [
            Step(draft=draft, places=[places[role] for role in draft.roles], layers=layers)
            for draft in chosen.way.drafts
        ]
