"""Rules about what ``enqueue`` computes: R46 to R48 and R50 to R53."""

from __future__ import annotations

from dovetail.plugin.check.driver import CheckedPlugin
from dovetail.plugin.check.host.calls import CallbackRaised
from dovetail.plugin.check.host.runs import Run, disagreement
from dovetail.plugin.check.problem import Case
from dovetail.plugin.check.rules.catalogue import rule
from dovetail.rules import Broken, NotApplicable

__all__: list[str] = []


@rule(
    "R46",
    "Two new objects with the same inputs give the same results",
    slug="deterministic",
    why="Otherwise no tactic can be checked against another, and a plan cannot be tested.",
    fix="seed random numbers from a parameter, and sum in a fixed order or within the tolerance of the type",
    compares=True,
)
def judge_determinism(subject: CheckedPlugin) -> None:
    """Run two new objects with the same inputs and the same bytes in outputs and workspace."""
    if subject.repeat_difference:
        raise Broken(f"{subject.main_cell.describe()}: {subject.repeat_difference} of the first object")


@rule(
    "R47",
    "A run does not depend on the runs before it",
    slug="run-to-run",
    why="The engine runs the layer for warm-up, for timing and for other requests in between.",
    fix="keep nothing between runs; state belongs in a tensor, aliased if it is to be updated in place",
    compares=True,
)
def judge_memory(subject: CheckedPlugin) -> None:
    """Run inputs A, then B, then A again on one object."""
    found = subject.memory_difference
    if found:
        raise Broken(f"inputs A, then B, then A again: {found} the first time")


@rule(
    "R48",
    "After on_shape_change a run is the same as on a new object",
    slug="shape-change",
    why="One context runs many shapes; what was kept for the last one must not be used for the next.",
    fix="set everything that depends on shapes anew in on_shape_change, or take it from the descriptors in enqueue",
    compares=True,
)
def judge_shape_change(subject: CheckedPlugin) -> str:
    """Change the shapes of one object to and fro and compare each run with a new object's."""
    cases = subject.life.problem.full_cases
    if len(cases) < 2:
        raise NotApplicable("there is one case only; give another with --shapes")
    subject.require_stateless()
    expected = {cell.case: cell.first for cell in reversed(subject.matrix) if cell.formats == subject.life.formats}
    for before in cases:
        for after in cases:
            if before != after and before in expected and after in expected:
                _require_same_after(subject, before, after, expected[after])
    return f"{len(cases)} cases, in both orders"


def _require_same_after(subject: CheckedPlugin, before: Case, after: Case, expected: Run) -> None:
    words = f"shapes changed from {', '.join(map(str, before))} to {', '.join(map(str, after))}"
    prepared = subject.life.prepare()
    prepared.reshape(before)
    prepared.run(before)
    try:
        prepared.reshape(after)
        run = prepared.run(after)
    except CallbackRaised as raised:
        raise Broken(f"{words}: {raised}") from None
    found = disagreement(run, expected)
    if found:
        raise Broken(f"{words}: {found} on a new object")
    # Writes that a new object does too are judged by R42 and R43.
    was_clean = not (expected.damage or expected.workspace_damage)
    for text in (*run.damage, run.workspace_damage):
        if text and was_clean:
            raise Broken(f"{words}: enqueue wrote {text}")


@rule(
    "R50",
    "All tactics give the same results within the tolerance of the type",
    slug="tactics-agree",
    why="The tuner picks the fastest; a fast tactic that is wrong makes the network wrong.",
    fix="mend the tactic that differs, or leave it out of get_valid_tactics",
    compares=True,
)
def judge_tactics(subject: CheckedPlugin) -> str:
    """Compare the runs of every tactic with those of the first."""
    subject.require_repeatable()
    count = 0
    for cell in subject.matrix:
        first = next(c for c in subject.matrix if (c.formats, c.case) == (cell.formats, cell.case))
        if first is not cell:
            count += 1
            found = disagreement(cell.first, first.first)
            if found:
                raise Broken(f"{cell.describe()}: {found} with tactic {first.tactic}")
    if not count:
        raise NotApplicable("there is one tactic only")
    return f"{count} runs compared"


@rule(
    "R51",
    "All accepted formats give the same results within the tolerance of the type",
    slug="formats-agree",
    why="The builder picks the formats that suit the neighbours; the layer must compute the same in all of them.",
    fix="take the layout from the descriptors in enqueue, or do not accept the format",
    compares=True,
)
def judge_formats(subject: CheckedPlugin) -> str:
    """Bring the results of every combination to plain arrays and compare them with the first of the same tactic."""
    subject.require_repeatable()
    count = 0
    for cell in subject.matrix:
        first = next(c for c in subject.matrix if (c.case, c.tactic) == (cell.case, cell.tactic))
        if first.formats != cell.formats:
            count += 1
            found = disagreement(cell.first, first.first)
            if found:
                names = " ".join(layout.name for layout in first.formats)
                raise Broken(f"{cell.describe()}: {found} with formats {names}")
    if not count:
        raise NotApplicable("there is one combination of formats only")
    return f"{count} runs compared"


@rule(
    "R52",
    "enqueue runs with a null workspace when it asked for none",
    slug="null-workspace",
    why="The address is 0 then; making an array of it fails, writing there ends the process.",
    fix="leave the workspace argument alone unless get_workspace_size asked for memory",
)
def judge_null_workspace(subject: CheckedPlugin) -> None:
    """Run with address 0, once it is certain that nothing is written there."""
    cell = subject.main_cell
    if subject.life.prepare().workspace_bytes:
        raise NotApplicable("the plugin asks for a workspace")
    if cell.first.workspace_damage:
        raise NotApplicable("enqueue writes to a workspace it did not ask for, see R43")
    subject.require_repeatable()
    try:
        run = subject.run_new(cell.case, is_workspace_null=True)
    except CallbackRaised as raised:
        raise Broken(f"with workspace 0 {raised}") from None
    found = disagreement(run, cell.first)
    if found:
        raise Broken(f"with workspace 0 {found}")


@rule(
    "R53",
    "Inputs without elements run when the profile allows them",
    slug="empty-tensors",
    why="A detector that finds nothing passes an empty tensor on; no layer may fail on it.",
    fix="return early from enqueue when an output has no elements, and write what does have elements",
)
def judge_empty(subject: CheckedPlugin) -> str:
    """Run the given cases that have a dimension of 0."""
    cases = subject.life.problem.empty_cases
    if not cases:
        raise NotApplicable("no case with a dimension of 0 was given")
    _ = subject.main_cell
    for case in cases:
        words = f"inputs {', '.join(map(str, case))}"
        try:
            run = subject.run_new(case)
        except CallbackRaised as raised:
            raise Broken(f"{words}: {raised}") from None
        if run.damage:
            raise Broken(f"{words}: enqueue wrote {run.damage[0]}")
    return f"{len(cases)} cases"
