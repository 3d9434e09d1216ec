"""Rules about what ``enqueue`` touches: R40 to R45 and R49."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from dovetail.plugin.check.driver import Cell, CheckedPlugin, run_new
from dovetail.plugin.check.host.calls import CallbackRaised
from dovetail.plugin.check.host.hostile import FILL_A, FILL_B, FILL_NAN, LATER_FILLS, MORE_FILLS, Fill
from dovetail.plugin.check.host.runs import Run, disagreement, unwritten
from dovetail.plugin.check.rules.catalogue import rule
from dovetail.rules import Blocked, Broken, NotApplicable
from dovetail.types import DataType

__all__: list[str] = []

_NAN_FIX: Final = "assign instead of clearing by a multiplication with zero, which leaves NaN as it is"
_LATER_FIX: Final = "clear the outputs and the workspace in every run: other layers use the memory between two runs"
_TELLING_NUMBERS: Final = (-1, 0, 1)
_RUN_CALLBACKS: Final = frozenset({"set_tactic", "on_shape_change", "enqueue"})


def _runs(subject: CheckedPlugin) -> Iterator[tuple[Cell, Run]]:
    for cell in subject.all_cells:
        yield cell, cell.first
        yield cell, cell.second


@rule(
    "R40",
    "set_tactic, on_shape_change and enqueue do not raise",
    slug="run-raises",
    why="A raise ends the run, and while a plan is tuned it loses the tactic.",
    fix="mend the callback; if it refuses the inputs that were tried, give others with --shapes",
)
def judge_raises(subject: CheckedPlugin) -> str:
    """Run every combination, tactic and case."""
    life = subject.life
    _ = life.tactics
    raised = subject.log.first_raise(_RUN_CALLBACKS)
    if raised is not None:
        raise Broken(f"{raised}, with {raised.situation or f'inputs {subject.describe_inputs()}'}")
    return f"{len(subject.matrix)} combinations of formats, tactic and shape"


@rule(
    "R41",
    "enqueue does not write its inputs, unless an output is aliased to them",
    slug="inputs-written",
    why="Other layers read the same memory, before or after this one.",
    fix="work on the output or in the workspace, or declare the alias with get_aliased_input",
)
def judge_inputs(subject: CheckedPlugin) -> None:
    """Compare every input before and after."""
    for cell, run in _runs(subject):
        for index, text in run.written_inputs.items():
            raise Broken(f"{cell.describe()}: enqueue changed input {index}: {text}")
    cell = subject.main_cell
    if _ends_where_inputs_are_read_only(subject, cell):
        raise Broken(f"{cell.describe()}: enqueue wrote an input and put back what was there")


def _ends_where_inputs_are_read_only(subject: CheckedPlugin, cell: Cell) -> bool:
    """Whether a run in a new process comes to its end, and not when the system refuses writes to its inputs."""
    if subject.device is not None:
        return False  # no such protection there
    try:
        subject.ask_fresh(cell)
    except NotApplicable:
        return False
    try:
        subject.ask_fresh(cell, is_protected=True)
    except Blocked:
        return True
    return False


@rule(
    "R42",
    "enqueue writes nothing outside inputs and outputs",
    slug="outside-outputs",
    why="The memory next to a tensor belongs to another one; the damage shows somewhere else.",
    fix="take shapes, type and format from the descriptors of this call, as get_output_shapes declared them",
)
def judge_outside(subject: CheckedPlugin) -> None:
    """Look at the guard bytes around every tensor."""
    for cell, run in _runs(subject):
        if run.damage:
            raise Broken(f"{cell.describe()}: enqueue wrote {run.damage[0]}")


@rule(
    "R43",
    "enqueue uses no more workspace than get_workspace_size asked for",
    slug="outside-workspace",
    why="The engine reserves what was asked for, for the largest shapes of the profile, and not a byte more.",
    fix="compute get_workspace_size from the max dims, for every tactic and the smaller shapes too",
)
def judge_workspace(subject: CheckedPlugin) -> None:
    """Look at the guard bytes around the workspace, for every tactic and case."""
    for cell, run in _runs(subject):
        if run.workspace_damage:
            asked = cell.life.prepare(formats=cell.formats, tactic=cell.tactic).workspace_bytes
            raise Broken(f"{cell.describe()}: {asked} bytes were asked for, enqueue wrote {run.workspace_damage}")


@rule(
    "R44",
    "enqueue writes every element of every output, in the declared type and shape",
    slug="unwritten-outputs",
    why="What is left holds the numbers of some earlier layer.",
    fix="write all elements; declare the shape and the type that are really written",
)
def judge_unwritten(subject: CheckedPlugin) -> None:
    """Fill outputs with two patterns and look for elements that kept both."""
    subject.require_finished()
    for cell in subject.all_cells:
        found = unwritten(cell.first, cell.second)
        if found:
            raise Broken(f"{cell.describe()}: {found}")
    for refusal in subject.widened.refusals if subject.widened else ():
        if refusal.is_misfit:
            raise Broken(
                f"{refusal.describe()}: what was computed does not fit the declared output",
                fix="declare the shape that is really computed, from the dimensions of the inputs",
            )


@rule(
    "R45",
    "Results do not depend on what outputs and workspace held before",
    slug="garbage",
    why="Their memory is not cleared: it holds whatever the last layer left there.",
    fix="assign instead of adding to an output, and clear the workspace before reading it",
    compares=True,
)
def judge_garbage(subject: CheckedPlugin) -> None:
    """Compare runs with different bytes in outputs and workspace, first runs and later ones of an object."""
    subject.require_repeatable()
    if any(unwritten(cell.first, cell.second) for cell in subject.all_cells):
        raise Blocked("not every element is written, see R44")
    for cell in subject.all_cells:
        found = disagreement(cell.second, cell.first)
        if found and not _reads_guards(cell):
            raise Broken(f"{cell.describe()}: with other bytes in {_find_source(cell)}, {found}")
    for cell in subject.all_cells:
        run = run_new(cell.life, cell.case, formats=cell.formats, tactic=cell.tactic, fill=FILL_NAN)
        found = disagreement(run, cell.first)
        if found:
            raise Broken(f"{cell.describe()}: with NaN in outputs and workspace before, {found}", fix=_NAN_FIX)
    if not subject.depends_on_earlier_runs:
        for cell in subject.all_cells:
            _judge_later_runs(cell, LATER_FILLS)
        _judge_later_runs(subject.main_cell, MORE_FILLS)


def _judge_later_runs(cell: Cell, fills: Sequence[Fill]) -> None:
    """Run one object several times in the same memory, with other bytes in outputs and workspace before each run."""
    prepared = cell.life.prepare(formats=cell.formats, tactic=cell.tactic)
    prepared.reshape(cell.case)
    bench = prepared.bench(cell.case)
    prepared.run_bench(bench, cell.case)
    for number, fill in enumerate(fills, 2):
        words = f"run {number} of one object, with bytes 0x{fill.workspace:02X} in outputs and workspace before"
        try:
            found = disagreement(prepared.run_again(bench, cell.case, fill=fill), cell.first)
        except CallbackRaised as raised:
            raise Broken(f"{cell.describe()}: {words}: {raised}") from None
        if found:
            raise Broken(f"{cell.describe()}: {words}: {found} on a new object", fix=_LATER_FIX)


@rule(
    "R63",
    "enqueue reads nothing outside its inputs",
    slug="outside-reads",
    why="What lies next to a tensor is another one, or no memory at all; the result changes with the neighbours.",
    fix="take every size from the descriptors of this call; mind odd sizes and the last row",
    compares=True,
)
def judge_reads(subject: CheckedPlugin) -> None:
    """Compare runs with other numbers around the inputs."""
    subject.require_repeatable()
    for cell in subject.all_cells:
        found = disagreement(cell.second, cell.first)
        if found and not unwritten(cell.first, cell.second) and _reads_guards(cell):
            raise Broken(f"{cell.describe()}: with other numbers before and after the inputs, {found}")


@rule(
    "R62",
    "enqueue writes nothing after it has returned",
    slug="late-writes",
    why="The next layer reads the outputs at once, and their memory is soon that of another tensor.",
    fix="wait for threads and other queues before enqueue returns, or work on the stream that was passed",
)
def judge_late_writes(subject: CheckedPlugin) -> None:
    """Keep the memory of all runs, and compare it a little later."""
    found = subject.late_write or subject.memory.find_late_write()
    if found and subject.writes_stale_memory:
        raise Blocked("a run writes the memory of an earlier one, see R64")
    if found:
        raise Broken(found)


def _find_source(cell: Cell) -> str:
    return "the workspace" if _differs(cell, Fill(FILL_A.outputs, FILL_B.workspace, FILL_A.guards)) else "the outputs"


def _reads_guards(cell: Cell) -> bool:
    return _differs(cell, Fill(FILL_A.outputs, FILL_A.workspace, FILL_B.guards))


def _differs(cell: Cell, fill: Fill) -> bool:
    run = run_new(cell.life, cell.case, formats=cell.formats, tactic=cell.tactic, fill=fill)
    return disagreement(run, cell.first) is not None


@rule(
    "R49",
    "enqueue leaves in every size tensor a value from 0 to its upper bound",
    slug="size-value",
    why="The next layers take that many elements from memory that was sized for the upper bound.",
    fix="declare an upper bound that holds for all data, and write the number of elements that were produced",
)
def judge_sizes(subject: CheckedPlugin) -> str:
    """Read the size tensors after every run."""
    if not subject.life.layer.size_tensors:
        raise NotApplicable("no output depends on the data")
    seen = set()
    for cell, run in _runs(subject):
        if unwritten(cell.first, cell.second):
            continue
        for index, size in run.sizes.items():
            if not 0 <= size <= run.bounds[index]:
                raise Broken(f"{cell.describe()}: output {index} holds {size}, expected 0 to {run.bounds[index]}")
            seen.add(size)
    for number in _TELLING_NUMBERS:
        seen |= _judge_constant_inputs(subject, number)
    return f"values {sorted(seen)}"


def _constant(shape: tuple[int, ...], dtype: DataType, number: int) -> npt.NDArray[Any]:
    return np.full(shape, number if dtype.is_float else max(number, 0)).astype(dtype.numpy)


def _judge_constant_inputs(subject: CheckedPlugin, number: int) -> set[int]:
    """Inputs that are the same everywhere: mostly nothing or everything is found in them."""
    life, case = subject.life, subject.main_cell.case
    prepared = life.prepare()
    prepared.reshape(case)
    arrays = [_constant(shape, dtype, number) for shape, dtype in zip(case, life.problem.types, strict=True)]
    words = f"inputs {', '.join(map(str, case))}, all {number}"
    try:
        run = prepared.run_bench(prepared.bench(case, arrays=arrays), case)
    except CallbackRaised as raised:
        raise Broken(f"{words}: {raised}") from None
    for text in run.damage:
        raise Broken(f"{words}: enqueue wrote {text}")
    for index, size in run.sizes.items():
        if not 0 <= size <= run.bounds[index]:
            raise Broken(f"{words}: output {index} holds {size}, expected 0 to {run.bounds[index]}")
    return set(run.sizes.values())
