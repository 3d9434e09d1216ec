"""From chosen layers to a program: five stages, each from a draft to the next, with a check between them.

1. ``emission``: the graph as steps, with each tensor where it is made.
2. ``moves``: copies and reformats to where tensors are wanted.
3. ``overwrites``: copies of what plugins would overwrite.
4. ``outputs``: the values that leave the program.
5. ``assembly``: numbers and records; ``memory_plan`` then gives every value its place in the arena.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from dovetail.build.lower.assembly import assemble
from dovetail.build.lower.drafts import DraftProgram, place_of
from dovetail.build.lower.emission import Emission
from dovetail.build.lower.memory.arena_plan import plan_memory
from dovetail.build.lower.memory.moves import add_moves
from dovetail.build.lower.memory.overwrites import check_overwrites, protect_overwritten
from dovetail.build.lower.outputs import make_body_outputs, make_outputs
from dovetail.build.lower.program_context import ProgramContext
from dovetail.errors import InternalError
from dovetail.plan.manifest import ProgramRecord

__all__ = ["check_order", "check_places", "lower_graph"]


def lower_graph(graph: ir.Graph, context: ProgramContext) -> ProgramRecord:
    """The program of a network, with memory planned when there is a profile."""
    draft, _ = _lower(graph, context, is_body=False)
    program = assemble(make_outputs(draft, context))
    return program if context.is_open else plan_memory(program)


def _lower_body(graph: ir.Graph, context: ProgramContext) -> tuple[ProgramRecord, Sequence[ir.Value]]:
    """The program of a body, and what it captures."""
    draft, outside = _lower(graph, context, is_body=True)
    return assemble(make_body_outputs(draft)), outside


def _lower(graph: ir.Graph, context: ProgramContext, *, is_body: bool) -> tuple[DraftProgram, Sequence[ir.Value]]:
    emission = Emission(context, graph, lambda body: _lower_body(body, context), is_body=is_body)
    draft = emission.emit()
    check_order(draft, "emission")
    draft = add_moves(draft, context)
    check_order(draft, "moves")
    check_places(draft)
    draft = protect_overwritten(draft, context)
    check_order(draft, "overwrites")
    check_overwrites(draft)
    return draft, list(emission.captured)


def check_order(draft: DraftProgram, stage: str) -> None:
    """Check that every value is made once, and before it is read."""
    made = {*draft.inputs, *draft.captured, -1}
    made |= {number for number, value in enumerate(draft.values) if value.kind == "constant"}
    for step in draft.steps:
        late = [read.value for read in step.reads() if read.value not in made]
        twice = [number for number in step.outputs if number >= 0 and number in made]
        if late or twice:
            names = [draft.values[number].name for number in (*late, *twice)]
            what = "a value is read before it is made" if late else "a value is made twice"
            raise InternalError(f"{what}, after {stage}", where=f"step '{step.record.name}'", got=names[:3])
        made.update(step.outputs)
    if any(read.value not in made for read in draft.outputs):
        raise InternalError(f"an output is not made, after {stage}")


def check_places(draft: DraftProgram) -> None:
    """Check that every step finds what it reads where and how it wants it."""
    for step in draft.steps:
        for read in step.reads():
            if read.place is not None and read.value >= 0 and place_of(draft.values[read.value]) != read.place:
                raise InternalError(
                    "a step does not find a value where it wants it",
                    where=f"step '{step.record.name}', value '{draft.values[read.value].name}'",
                    expected=read.place,
                    got=place_of(draft.values[read.value]),
                )
