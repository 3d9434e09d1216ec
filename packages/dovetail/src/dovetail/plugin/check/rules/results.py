"""Rules about what ``enqueue`` computes: R46 to R48 and R50 to R53."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from dovetail.plugin.check.cases.problem import Case, make_inputs
from dovetail.plugin.check.driver import Cell, CheckedPlugin
from dovetail.plugin.check.host.calls import CallbackRaised
from dovetail.plugin.check.host.runs import Run, disagreement
from dovetail.plugin.check.lifecycle import Life
from dovetail.plugin.check.rules.catalogue import rule
from dovetail.plugin.check.stale_reads import find_stale_read, is_cpp, is_creation_argument
from dovetail.rules import Blocked, Broken, NotApplicable

__all__: list[str] = []

_MOST_OFF: Final = 0.1
_ARGUMENT_FIX: Final = "copy dims, types and addresses; keep no pointer to a descriptor or to an array of the arguments"


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
    subject.require_finished()
    found = subject.repeat_difference
    if not found:
        return
    words = f"{subject.main_cell.describe()}: {found} of the first object"
    if subject.is_same_in_fresh_processes:
        raise Broken(
            f"{words}; in new processes the first result is always the same, so something outlives the object",
            fix="keep what changes in the object, never in the class, the module or a shared generator",
        )
    raise Broken(words)


@rule(
    "R47",
    "A run does not depend on the runs before it",
    slug="run-to-run",
    why="The engine runs the layer for warm-up, for timing and for other requests in between.",
    fix="keep nothing between runs; state belongs in a tensor, aliased if it is to be updated in place",
    compares=True,
)
def judge_memory(subject: CheckedPlugin) -> None:
    """Run inputs A, then B, then A again on one object, and B on a new one."""
    found = subject.memory_difference
    if found:
        raise Broken(found)


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
                _require_same_back(subject, before, after, expected[before])
    return f"{len(cases)} cases, in both orders"


def _require_same_after(subject: CheckedPlugin, before: Case, after: Case, expected: Run) -> None:
    words = f"shapes changed from {', '.join(map(str, before))} to {', '.join(map(str, after))}"
    prepared = subject.life.prepare()
    prepared.reshape(before)
    workspace = None if subject.depends_on_garbage else prepared.new_workspace()
    first = prepared.run_over(workspace, before)
    try:
        prepared.reshape(after)
        run = prepared.run_over(workspace, after)
    except CallbackRaised as raised:
        raise Broken(f"{words}: {raised}") from None
    found = disagreement(run, expected)
    if found:
        raise Broken(f"{words}: {found} on a new object")
    # Writes that a new object does too are judged by R42 and R43.
    was_clean = not any(each.damage or each.workspace_damage for each in (expected, first))
    for text in (*run.damage, run.workspace_damage):
        if text and was_clean:
            raise Broken(f"{words}: enqueue wrote {text}")


def _require_same_back(subject: CheckedPlugin, case: Case, other: Case, expected: Run) -> None:
    """Run a case before and after another one, all in one workspace that is never cleared."""
    prepared = subject.life.prepare()
    workspace = None if subject.depends_on_garbage else prepared.new_workspace()
    words = f"shapes changed from {', '.join(map(str, case))} to {', '.join(map(str, other))} and back"
    try:
        for each in (case, other, case):
            prepared.reshape(each)
            run = prepared.run_over(workspace, each)
    except CallbackRaised as raised:
        raise Broken(f"{words}: {raised}") from None
    found = disagreement(run, expected)
    if found:
        raise Broken(f"{words}: {found} on a new object")


@rule(
    "R64",
    "enqueue uses the addresses of its own call",
    slug="stale-addresses",
    why="Every run may have other memory, and that of an earlier run belongs to somebody else by then.",
    fix="make arrays from the addresses in each call of enqueue; keep neither addresses nor views of them",
    compares=True,
)
def judge_addresses(subject: CheckedPlugin) -> None:
    """Run twice with the same inputs in other memory, and change the memory of the first run in between.

    The arguments of C++ callbacks, descriptors and arrays of addresses, cannot be read when the callback has returned.
    """
    found = subject.stale_difference
    if found:
        raise Broken(f"the same inputs at other addresses: {found} before")
    if is_cpp(subject):
        stale = find_stale_read(subject, lambda label: not is_creation_argument(label))
        if stale:
            raise Broken(stale, fix=_ARGUMENT_FIX)


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
    for cell in subject.all_cells:
        first = next(c for c in subject.all_cells if _place(c) == _place(cell))
        if first is not cell:
            count += 1
            found = disagreement(cell.first, first.first)
            if found:
                raise Broken(f"{cell.describe()}: {found} with tactic {first.tactic}")
    if not count:
        raise NotApplicable("there is one tactic only")
    with suppress(Blocked):  # judged by R47
        subject.require_stateless()
        _run_in_turn(subject)
    return f"{count} runs compared"


def _run_in_turn(subject: CheckedPlugin) -> None:
    """Give one object all tactics in turn, as the tuner does, there and back."""
    life, case = subject.life, subject.main_cell.case
    cells = [cell for cell in subject.matrix if (cell.formats, cell.case) == (life.formats, case)]
    prepared = life.prepare(tactic=cells[0].tactic)
    for cell in (*cells, *reversed(cells)):
        prepared.retune(cell.tactic)
        prepared.reshape(case)
        words = f"tactic {cell.tactic} after others on one object"
        try:
            found = disagreement(prepared.run(case), cell.first)
        except CallbackRaised as raised:
            raise Broken(f"{words}: {raised}") from None
        if found:
            raise Broken(f"{words}: {found} on a new object", fix="set everything that depends on the tactic anew")


def _place(cell: Cell) -> tuple[object, ...]:
    return id(cell.life), cell.formats, cell.case


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
    "R66",
    "All accepted floating-point types compute the same function",
    slug="types-agree",
    why="The builder and the model choose the type; a path that is wrong for one of them is a wrong model.",
    fix="take the type from the descriptors in enqueue, or do not accept it in supports_format_combination",
    compares=True,
)
def judge_types(subject: CheckedPlugin) -> str:
    """Give numbers that both types can hold to the plugin in each, and compare roughly."""
    subject.require_repeatable()
    others = [
        life for life in subject.other_lives if _is_float(life) and life.problem.types != subject.life.problem.types
    ]
    if not others or not _is_float(subject.life):
        raise NotApplicable("there is one floating-point type only")
    for life in others:
        _require_same_function(subject.life, life)
    return f"{', '.join(life.problem.types[0].name for life in others)} compared"


def _is_float(life: Life) -> bool:
    types = life.problem.types
    return bool(types) and types[0].is_float and types[0].bits >= 16


def _require_same_function(life: Life, other: Life) -> None:
    case = life.problem.main
    arrays = make_inputs(other.problem, case, seed=life.seed)
    same = [array.astype(dtype.numpy) for array, dtype in zip(arrays, life.problem.types, strict=True)]
    found = [_run_with(item, case, numbers) for item, numbers in ((other, arrays), (life, same))]
    names = other.problem.types[0].name, life.problem.types[0].name
    for index, dtype in enumerate(other.layer.types):
        if not dtype.is_float or found[0].shapes[index] != found[1].shapes[index]:
            continue
        got, expected = (run.array(index).astype(np.float64) for run in found)
        far = _far_apart(got, expected)
        if far is not None:
            raise Broken(
                f"inputs {', '.join(map(str, case))}, output {index}, element {far}: "
                f"{got[far]:g} with {names[0]}, {expected[far]:g} with {names[1]}"
            )


def _run_with(life: Life, case: Case, arrays: Sequence[npt.NDArray[Any]]) -> Run:
    prepared = life.prepare()
    prepared.reshape(case)
    return prepared.run_bench(prepared.bench(case, arrays=arrays), case)


def _far_apart(got: npt.NDArray[Any], expected: npt.NDArray[Any]) -> tuple[int, ...] | None:
    """An element that no rounding explains: more than a tenth of the range away."""
    with np.errstate(invalid="ignore", over="ignore"):
        usual = np.isfinite(got) & np.isfinite(expected)
        reach = max(float(np.abs(expected[usual]).max(initial=0.0)), 1e-3)
        off = np.where(usual, np.abs(got - expected), 0.0)
    if not off.size or off.max() <= _MOST_OFF * reach:
        return None
    return tuple(int(i) for i in np.unravel_index(int(off.argmax()), off.shape))


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
        raise NotApplicable("no case with a dimension of 0 was given, and the plugin takes none of the checker's")
    _ = subject.main_cell
    for case in cases:
        words = f"inputs {', '.join(map(str, case))}"
        try:
            run = subject.run_new(case)
        except CallbackRaised as raised:
            if raised.is_deliberate and subject.wish.cases is None:
                raise NotApplicable(f"the plugin refuses {words}: {raised}") from None
            raise Broken(f"{words}: {raised}") from None
        # Writes that a run with elements does too are judged by R42.
        if run.damage and not any(cell.first.damage for cell in subject.matrix):
            raise Broken(f"{words}: enqueue wrote {run.damage[0]}")
    return f"{len(cases)} cases"
