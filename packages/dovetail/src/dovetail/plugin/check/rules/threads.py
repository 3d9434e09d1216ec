"""Rules about several objects side by side: R54 to R56 and R69."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from contextvars import copy_context
from types import FrameType
from typing import Any, Final

from dovetail.plugin.check.cases.field_values import copy_fields
from dovetail.plugin.check.cases.problem import Case
from dovetail.plugin.check.driver import Cell, CheckedPlugin
from dovetail.plugin.check.host.calls import LIBRARY_FOLDERS, CallbackRaised, call, journal
from dovetail.plugin.check.host.hostile import GuardedBuffer
from dovetail.plugin.check.host.runs import Run, disagreement
from dovetail.plugin.check.isolation.journal import FRESH_SLOT
from dovetail.plugin.check.isolation.stale_runs import ORPHANS
from dovetail.plugin.check.lifecycle import Life, Prepared
from dovetail.plugin.check.plugin_object import Specimen
from dovetail.plugin.check.rules.catalogue import rule
from dovetail.plugin.fields import PluginFieldCollection
from dovetail.rules import Blocked, Broken, NotApplicable
from dovetail.types import volume

__all__: list[str] = []

_ORPHAN_FIX: Final = (
    "copy in clone what destroy releases, and point every part of the new object at the new object: "
    "create capabilities that know their plugin again, and do not copy them"
)
_ROUNDS: Final = 8
_PAUSE_S: Final = 2e-5
_THREAD_SWITCH_S: Final = 1e-5
_PATIENCE_S = 20.0
_GIVE_UP_S: Final = 1.0
_GLANCE_S: Final = 0.05

_Result = list[Run] | CallbackRaised | None
"""What a thread has to show: its runs, what a callback raised, or nothing when it did not come back."""


@rule(
    "R54",
    "Two contexts whose calls are interleaved give the results that each gives alone",
    slug="contexts-interleaved",
    why="Contexts of one engine take turns; what one sets must not be seen by the other.",
    fix="keep shapes, tactic and buffers in the attached object, never in the class or the module",
    compares=True,
)
def judge_interleaving(subject: CheckedPlugin) -> None:
    """Interleave two attached objects, with the same shapes and with different ones."""
    found = subject.remember("interleaving", lambda: _find_interleaving_fault(subject))
    if found:
        raise Broken(found)


def _find_interleaving_fault(subject: CheckedPlugin) -> str | None:
    _ = subject.has_working_attach
    subject.require_stateless()
    for cases in _pairs_of_cases(subject):
        found = _interleave(subject, cases)
        if not found and not subject.depends_on_garbage:
            found = _interleave(subject, cases, is_workspace_shared=True)
        if found:
            return found
    return None


def _interleave(subject: CheckedPlugin, cases: Sequence[Case], *, is_workspace_shared: bool = False) -> str | None:
    """Reshape one context, then the other, then run them in turns."""
    life = subject.life
    expected = [_run_alone(life, case, variant) for variant, case in enumerate(cases)]
    original = life.make_declared()
    pair = [life.prepare(source=original) for _ in cases]
    for prepared, case in zip(pair, cases, strict=True):
        prepared.reshape(case)
    workspace = pair[0].new_workspace() if is_workspace_shared else None
    shared = " in one workspace" if is_workspace_shared else ""
    for number in (0, 1, 0, 1):
        words = f"context {number + 1} with another context beside it{shared}, {_words(cases)}"
        try:
            run = pair[number].run_over(workspace, cases[number], variant=number)
        except CallbackRaised as raised:
            return f"{words}: {raised}"
        found = disagreement(run, expected[number])
        if found:
            return f"{words}: {found} alone"
    return None


def _words(cases: Sequence[Case]) -> str:
    return "both with the same shapes" if cases[0] == cases[1] else "each with its own shapes"


def _pairs_of_cases(subject: CheckedPlugin) -> list[tuple[Case, Case]]:
    ran = {cell.case for cell in subject.matrix}
    usable = [case for case in subject.life.problem.full_cases if case in ran]
    largest = max(usable, key=lambda case: sum(volume(shape) for shape in case))
    pairs = [(usable[0], usable[0]), (usable[0], usable[-1]), (largest, usable[1 % len(usable)])]
    return list(dict.fromkeys(pairs))


def _run_alone(life: Life, case: Case, variant: int) -> Run:
    prepared = life.prepare()
    prepared.reshape(case)
    return prepared.run(case, variant=variant)


@rule(
    "R69",
    "Two layers with different parameters do not disturb each other",
    slug="layers-apart",
    why="A network has many layers of one plugin, each with its own parameters.",
    fix="keep parameters in the object, never in the class or the module; a cache needs them in its key",
    compares=True,
)
def judge_layers(subject: CheckedPlugin) -> None:
    """Make and run a layer with other fields between making and running one, and compare both with runs alone."""
    subject.require_stateless()
    if subject.other_fields is None:
        raise NotApplicable("there is no other set of fields that the plugin runs with")
    cell, life = subject.main_cell, subject.life
    prepared = life.prepare()
    prepared.reshape(cell.case)
    workspace = None if subject.depends_on_garbage else prepared.new_workspace()
    other = _run_other(subject, cell, subject.other_fields, workspace)
    found = disagreement(prepared.run_over(workspace, cell.case), cell.first)
    if found:
        raise Broken(f"with another layer beside it, whose fields are others: {found} alone")
    _run_other(subject, cell, subject.other_fields, workspace)
    found = disagreement(prepared.run_over(workspace, cell.case), cell.first)
    if found:
        raise Broken(f"after another layer in the same workspace, whose fields are others: {found} alone")
    alone = subject.ask_fresh(cell, fields=subject.other_fields)
    if other is not None and not alone.raised and alone.shapes == other.shapes:
        found = disagreement(other, alone.as_run(other))
        if found:
            raise Broken(f"a layer with other fields, after this one: {found} in a new process")


def _run_other(
    subject: CheckedPlugin, cell: Cell, fields: PluginFieldCollection, workspace: GuardedBuffer | None
) -> Run | None:
    """Run a layer with other fields; None where it rejects the inputs or needs another workspace."""
    kept, subject.fields = subject.fields, copy_fields(fields)
    life = subject.life.with_problem(subject.life.problem)
    try:
        prepared = life.prepare(tactic=cell.tactic)
        prepared.reshape(cell.case)
        if prepared.formats != cell.formats:
            return None
        has_space = workspace is not None and prepared.workspace_bytes <= workspace.body.size
        return prepared.run_over(workspace if has_space else None, cell.case)
    except (Blocked, CallbackRaised):
        return None
    finally:
        subject.fields = kept


@rule(
    "R55",
    "Two contexts in two threads give the results that each gives alone",
    slug="contexts-in-threads",
    why="Contexts of one engine run in parallel; a buffer or an object they share is written by both.",
    fix="keep buffers in the attached object or take them from the workspace; guard what must be shared with a lock",
    compares=True,
)
def judge_threads(subject: CheckedPlugin) -> str:
    """Run two attached objects in two threads and compare with the same runs one after the other."""
    if subject.remember("interleaving", lambda: _find_interleaving_fault(subject)):
        raise Blocked("the contexts disturb each other even in one thread, see R54")
    pairs = _pairs_of_cases(subject)[:2]
    for cases in pairs:
        _race(subject, cases)
    return f"2 threads, {len(pairs)} x {_ROUNDS} runs each"


def _race(subject: CheckedPlugin, cases: Sequence[Case]) -> None:
    alone = _pair(subject)
    expected = [_rounds(alone, cases, number) for number in range(2)]
    results = _run_in_threads(_pair(subject), cases)
    compared = [_compare_runs(f"context {n + 1}", result, expected[n]) for n, result in enumerate(results)]
    if min(compared) < _ROUNDS:
        raise NotApplicable(f"the threads did not meet within {_PATIENCE_S:g} s: the machine is too busy to tell")


def _compare_runs(name: str, result: _Result, expected: list[Run]) -> int:
    if isinstance(result, CallbackRaised):
        raise Broken(f"{name}, while another runs: {result}")
    if result is None:
        raise Broken(f"{name}, while another runs: enqueue did not return within {_PATIENCE_S:g} s")
    # A thread that was stopped because the other one raised has fewer runs.
    for turn, (got, wanted) in enumerate(zip(result, expected, strict=False)):
        found = disagreement(got, wanted)
        if found:
            raise Broken(f"{name}, run {turn + 1}, while another runs: {found} alone")
    return len(result)


def _pair(subject: CheckedPlugin) -> list[Prepared]:
    original = subject.life.make_declared()
    return [subject.life.prepare(source=original) for _ in range(2)]


class _LastRun:
    """When a run last ended: a busy machine makes runs slow, and only one that never ends is stuck."""

    def __init__(self) -> None:
        self._latest_s = time.monotonic()

    def note(self) -> None:
        """A run has ended."""
        self._latest_s = time.monotonic()

    @property
    def is_stuck(self) -> bool:
        """Whether no run has ended for a long time; threads that wait for the other one have given up before."""
        return time.monotonic() - self._latest_s > _PATIENCE_S + _GIVE_UP_S


def _rounds(
    pair: Sequence[Prepared],
    cases: Sequence[Case],
    number: int,
    barrier: threading.Barrier | None = None,
    last_run: _LastRun | None = None,
) -> list[Run]:
    prepared, case = pair[number], cases[number]
    prepared.reshape(case)
    runs = []
    for turn in range(_ROUNDS):
        bench = prepared.bench(case, variant=2 * turn + number)
        if barrier is None or last_run is None:
            runs.append(prepared.run_bench(bench, case))
            continue
        barrier.wait()
        # Half of the rounds give way at every line, which shows what is shared; the others run as they do in use.
        with _giving_way() if turn % 2 else nullcontext():
            runs.append(prepared.run_bench(bench, case))
        last_run.note()
    return runs


@contextmanager
def _giving_way() -> Iterator[None]:
    """Let other threads run before every line that the author of the plugin wrote."""
    before = sys.gettrace()

    def trace(frame: FrameType, event: str, argument: object) -> Callable[..., Any] | None:
        if frame.f_code.co_filename.startswith(LIBRARY_FOLDERS):
            return None
        time.sleep(_PAUSE_S)
        return trace

    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def _run_in_threads(pair: Sequence[Prepared], cases: Sequence[Case]) -> list[_Result]:
    results: list[_Result] = [None, None]
    barrier = threading.Barrier(len(pair), timeout=_PATIENCE_S)
    last_run = _LastRun()

    def work(number: int) -> None:
        try:
            results[number] = _rounds(pair, cases, number, barrier, last_run)
        except CallbackRaised as raised:
            results[number] = raised
            barrier.abort()
        except threading.BrokenBarrierError:
            results[number] = []

    contexts = [copy_context() for _ in pair]  # with the memory that arguments of C++ callbacks are placed in
    threads = [threading.Thread(target=c.run, args=(work, number), daemon=True) for number, c in enumerate(contexts)]
    with _eager_switching():
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads) and not last_run.is_stuck:
            for thread in threads:
                thread.join(_GLANCE_S)
    return results


@contextmanager
def _eager_switching() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(_THREAD_SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@rule(
    "R56",
    "destroy does not raise, and the objects that are left work on",
    slug="destroy",
    why="Clones and contexts are destroyed one by one, in any order, while others run.",
    fix="free in destroy only what the object made for itself; share the rest through a resource of the registry",
)
def judge_destroy(subject: CheckedPlugin) -> None:
    """Destroy a clone and one of two attached objects, then run the other; destroy an original and run its copies."""
    subject.require_repeatable()
    life, case = subject.life, subject.main_cell.case
    original = subject.life.make_declared()
    first, second = life.prepare(source=original), life.prepare(source=original)
    gone = [first.specimen]
    with suppress(Blocked, CallbackRaised):  # judged by R24
        gone.append(life.clone(original))
    for specimen in gone:
        if specimen.plugin is not second.specimen.plugin:
            _destroy(specimen)
    try:
        second.reshape(case)
        found = disagreement(second.run(case), subject.main_cell.first)
        later = life.prepare(source=original)
        later.reshape(case)
        found = found or disagreement(later.run(case), subject.main_cell.first)
    except CallbackRaised as raised:
        raise Broken(f"after a sibling was destroyed {raised}") from None
    if found:
        raise Broken(f"after a sibling was destroyed {found} before")
    for specimen in (second.specimen, later.specimen, original):
        _destroy(specimen)
    for method in ORPHANS:
        _judge_orphan(subject, method)


def _judge_orphan(subject: CheckedPlugin, method: str) -> None:
    """Run a clone or an attached object whose original was destroyed, in a process of its own."""
    words, first = f"what {method} returned, after the original was destroyed", subject.main_cell.first
    try:
        before = subject.ask_fresh(subject.main_cell, orphaned=method, keeps_original=True)
    except NotApplicable:
        journal().abandon(FRESH_SLOT)
        return  # no process in which the plugin may crash, or it crashes anyway
    if before.raised or disagreement(before.as_run(first), first):
        return  # judged by the rules about clones and attached objects
    try:
        result = subject.ask_fresh(subject.main_cell, orphaned=method)
    except Blocked:
        callback = journal().abandon(FRESH_SLOT) or "a callback"
        raise Broken(f"{words}: {callback} ended the process", fix=_ORPHAN_FIX) from None
    found = result.raised or disagreement(result.as_run(first), first)
    if found:
        raise Broken(f"{words}: {found}{'' if result.raised else ' before'}", fix=_ORPHAN_FIX)


def _destroy(specimen: Specimen) -> None:
    if not specimen.is_destroyed:
        specimen.is_destroyed = True
        call(specimen.plugin, "destroy")
