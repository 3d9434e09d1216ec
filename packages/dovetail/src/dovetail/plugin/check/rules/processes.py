"""Rules about the process that a plugin runs in: R61, R65 and R68."""

from __future__ import annotations

from contextlib import suppress

from dovetail.plugin.check.driver import Cell, CheckedPlugin
from dovetail.plugin.check.host.process_state import find_change, moved_generators, snapshot
from dovetail.plugin.check.rules.catalogue import rule
from dovetail.rules import Broken

__all__: list[str] = []


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
    cells = _telling_cells(subject)
    for cell in cells:
        found = subject.fresh_difference(cell)
        if found is None:
            continue
        if subject.fresh_difference(cell, again=True):
            raise Broken(
                f"{cell.describe()}: {found} in this process, and another new process differs again",
                fix="use no process number, time, address or random state; seed from a parameter",
            )
        raise Broken(f"{cell.describe()}, first in a new process with another working directory: {found} after others")
    return f"{len(cells)} runs, each in a process of its own"


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
    """Take an object through its life and look at the process after each callback."""
    _ = subject.main_cell
    with moved_generators():
        _watch_life(subject)


def _watch_life(subject: CheckedPlugin) -> None:
    life, case = subject.life, subject.life.problem.main
    before = snapshot()

    def require_same(methods: str) -> None:
        changed = find_change(before)
        if changed:
            raise Broken(f"{methods} changed {changed}")

    specimen = subject.make()
    require_same("create_plugin")
    life.declare(specimen)
    require_same("get_output_data_types or get_output_shapes")
    prepared = life.prepare(source=specimen)
    require_same("attach_to_context, configure_plugin, set_tactic or get_workspace_size")
    prepared.reshape(case)
    require_same("on_shape_change")
    prepared.run(case)
    require_same("enqueue")
    with suppress(Broken):
        subject.serialize(prepared.specimen)
    require_same("get_fields_to_serialize")
