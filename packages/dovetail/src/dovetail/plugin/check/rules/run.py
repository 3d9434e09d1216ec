"""Rules about what ``enqueue`` touches: R40 to R45 and R49."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dovetail.plugin.check.driver import Cell, CheckedPlugin
from dovetail.plugin.check.host.hostile import FILL_A, FILL_B, Fill
from dovetail.plugin.check.host.runs import Run, disagreement, unwritten
from dovetail.plugin.check.rules.catalogue import rule
from dovetail.rules import Broken, NotApplicable

__all__: list[str] = []

_RUN_CALLBACKS: Final = frozenset({"set_tactic", "on_shape_change", "enqueue"})


def _runs(subject: CheckedPlugin) -> Iterator[tuple[Cell, Run]]:
    for cell in subject.matrix:
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
        raise Broken(f"{raised}, with inputs {subject.describe_inputs()}")
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
            asked = subject.life.prepare(formats=cell.formats, tactic=cell.tactic).workspace_bytes
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
    for cell in subject.matrix:
        found = unwritten(cell.first, cell.second)
        if found:
            raise Broken(f"{cell.describe()}: {found}")


@rule(
    "R45",
    "Results do not depend on what outputs and workspace held before",
    slug="garbage",
    why="Their memory is not cleared: it holds whatever the last layer left there.",
    fix="assign instead of adding to an output, and clear the workspace before reading it",
    compares=True,
)
def judge_garbage(subject: CheckedPlugin) -> None:
    """Compare runs with different bytes in outputs and workspace."""
    subject.require_repeatable()
    for cell in subject.matrix:
        found = _dependence(cell)
        if found:
            raise Broken(f"{cell.describe()}: with other bytes in {_find_source(subject, cell)}, {found}")


def _dependence(cell: Cell) -> str | None:
    if unwritten(cell.first, cell.second):
        return None
    return disagreement(cell.second, cell.first)


def _find_source(subject: CheckedPlugin, cell: Cell) -> str:
    only_workspace = Fill(FILL_A.outputs, FILL_B.workspace)
    run = subject.run_new(cell.case, formats=cell.formats, tactic=cell.tactic, fill=only_workspace)
    return "the workspace" if disagreement(run, cell.first) else "the outputs"


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
    return f"values {sorted(seen)}"
