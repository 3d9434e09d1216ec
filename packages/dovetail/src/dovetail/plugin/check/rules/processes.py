"""Rules about the process that a plugin runs in: R61, R65 and R68."""

from __future__ import annotations

import os
from typing import Final

from dovetail.plugin.check.driver import Cell, CheckedPlugin
from dovetail.plugin.check.host.calls import CallbackRaised
from dovetail.plugin.check.host.runs import disagreement
from dovetail.plugin.check.isolation.fresh_runs import FreshResult
from dovetail.plugin.check.isolation.watch import find_process_change
from dovetail.plugin.check.rules.catalogue import rule
from dovetail.rules import Broken, NotApplicable

__all__: list[str] = []

_MOST_VARIABLES: Final = 6


@rule(
    "R61",
    "Every callback returns: none hangs, and none ends the process",
    slug="callbacks-return",
    why="The engine runs in the process of a server; a callback that does not come back takes everything along.",
    fix="raise an exception instead of ending the process, wait with a time limit, and stay inside your memory",
)
def judge_return(subject: CheckedPlugin) -> None:
    """Nothing to do: a callback that does not return is seen by the process that watches this one."""


@rule(
    "R65",
    "A run gives what it gives as the first one in a new process",
    slug="fresh-process",
    why="A plan is loaded where nothing ran before it; what was left in a class or a module is not there.",
    fix="keep what a run needs in the object, and a cache under a key that has everything the entry depends on",
    compares=True,
)
def judge_fresh_process(subject: CheckedPlugin) -> str:
    """Run every case with the first tactic, and every tactic with the main case, each in a process of its own."""
    subject.require_repeatable()
    cells, variables = _telling_cells(subject), set()
    for cell in cells:
        result = subject.ask_fresh(cell)
        _require_same_result(subject, cell, result)
        variables |= set(result.variables)
    _require_same_revival(subject)
    _vary_environment(subject, sorted(variables))
    return f"{len(cells)} runs, each in a process of its own"


def _require_same_result(subject: CheckedPlugin, cell: Cell, result: FreshResult) -> None:
    words = f"{cell.describe()}, first in a new process with another working directory"
    if result.raised:
        raise Broken(f"{words}: {result.raised}")
    found = disagreement(result.as_run(cell.first), cell.first)
    if not found:
        return
    again = subject.ask_fresh(cell)
    if not again.raised and disagreement(again.as_run(cell.first), result.as_run(cell.first)):
        raise Broken(
            f"{words}: {found} here, and another new process differs again",
            fix="use no process number, time, address or random state; seed from a parameter",
        )
    raise Broken(f"{words}: {found} after others")


def _require_same_revival(subject: CheckedPlugin) -> None:
    """Make an object from stored fields where no object was built before, as a process does that loads a plan."""
    cell = subject.main_cell
    if not _is_revived_here(subject, cell):
        return  # that is told by R36 and R38
    result = subject.ask_fresh(cell, stored=subject.serialized)
    found = result.raised or disagreement(result.as_run(cell.first), cell.first)
    if found:
        raise Broken(
            f"made from the stored fields in a new process: {found}{'' if result.raised else ' where it was built'}",
            fix="store the parameters themselves in the fields, no number of an entry that only this process has",
        )


def _is_revived_here(subject: CheckedPlugin, cell: Cell) -> bool:
    """Whether an object made from stored fields gives the right results in this process."""
    try:
        _ = subject.has_working_revival
        prepared = subject.deploy(subject.revive(), cell.formats, cell.tactic)
        prepared.reshape(cell.case)
        return disagreement(prepared.run(cell.case), cell.first) is None
    except (NotApplicable, CallbackRaised):
        return False


def _vary_environment(subject: CheckedPlugin, variables: list[str]) -> None:
    """Set the variables that were read and not there, and take away those that were there, one by one."""
    cell = subject.main_cell
    for name in variables[:_MOST_VARIABLES]:
        result = subject.ask_fresh(cell, variables={name: None if name in os.environ else "1"})
        found = result.raised or disagreement(result.as_run(cell.first), cell.first)
        if found:
            state = "taken away" if name in os.environ else "set to 1"
            raise Broken(
                f"with the environment variable {name} {state}: {found} otherwise",
                fix="make it a field, so that it is stored in the plan",
            )


def _telling_cells(subject: CheckedPlugin) -> list[Cell]:
    life = subject.life
    main = [cell for cell in subject.matrix if cell.formats == life.formats]
    return [cell for cell in main if cell.tactic == life.tactic or cell.case == life.problem.main]


@rule(
    "R68",
    "Callbacks leave the process as they found it",
    slug="process-state",
    why="Generators, the environment and the working directory belong to the program that the engine runs in.",
    fix="make a generator of your own (np.random.default_rng(seed)), and set nothing that is global",
)
def judge_process_state(subject: CheckedPlugin) -> None:
    """Take an object through its life in a new process and look at the process after each callback."""
    cell = subject.main_cell
    try:
        found = subject.ask_fresh(cell, is_watched=True).change
    except NotApplicable:
        found = find_process_change(subject.life) or ""
    if found:
        raise Broken(found)
