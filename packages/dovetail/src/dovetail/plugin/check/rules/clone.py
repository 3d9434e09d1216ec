"""Rules about ``clone``: R24 to R28."""

from __future__ import annotations

import math
import time
import tracemalloc
from collections.abc import Callable
from typing import Final

from dovetail.plugin.check.cases.telling_fields import find_lost_zero
from dovetail.plugin.check.driver import CheckedPlugin
from dovetail.plugin.check.host.calls import CallbackRaised, call
from dovetail.plugin.check.host.memory import traced_peak_bytes
from dovetail.plugin.check.lifecycle import Life
from dovetail.plugin.check.plugin_object import Specimen, examine
from dovetail.plugin.check.rules.catalogue import rule
from dovetail.plugin.check.state import changes, state_of
from dovetail.plugin.check.traits import first_difference, traits_of
from dovetail.rules import Blocked, Broken, NotApplicable
from dovetail.types import TensorRTPhase

__all__ = ["find_dropped_tactic", "run_through_life"]

_ZERO_FIX: Final = "copy the value as it is: 'value or default' takes the default for 0"
_MOST_CLONE_BYTES: Final = 1 << 20
_MOST_CLONE_S: Final = 0.05
_MOST_CLONES: Final = 10


@rule(
    "R24",
    "clone gives a new object with at least the same capabilities",
    slug="clone-new",
    why="The network, the builder and each profile own a clone and destroy it on their own.",
    fix="make a new object of the same class, copy the parameters, and return it",
)
def judge_clone(subject: CheckedPlugin) -> None:
    """Clone a new object and examine the result."""
    specimen = subject.make()
    plugin = call(specimen.plugin, "clone")
    if plugin is specimen.plugin:
        raise Broken("clone returned the object itself, expected a new one")
    subject.keep(examine(plugin, TensorRTPhase.BUILD, made_by="clone"))


@rule(
    "R25",
    "A clone is the same layer as the original",
    slug="clone-parameters",
    why="Only clones are built and run; the object that was configured by hand never is.",
    fix="copy every parameter in clone, and those of the capability objects too",
)
def judge_parameters(subject: CheckedPlugin) -> str:
    """Compare a clone of a clone of a clone with a new object."""
    _ = subject.has_working_clone
    twin = subject.make()
    for _ in range(3):
        twin = subject.life.clone(twin)
    expected = traits_of(subject, subject.make())
    found = first_difference(_traits_of_twin(subject, twin, "a clone"), expected)
    if found:
        raise Broken(f"on a clone {found}")
    lost = find_lost_zero(subject, subject.life.clone)
    if lost:
        raise Broken(f"on a clone of an object with a field of 0: {lost}", fix=_ZERO_FIX)
    return f"{len(expected)} traits compared"


def _traits_of_twin(subject: CheckedPlugin, twin: Specimen, what: str) -> dict[str, object]:
    try:
        return traits_of(subject, twin)
    except CallbackRaised as raised:
        raise Broken(f"on {what}, but not on the original, {raised}") from None


@rule(
    "R26",
    "Using a clone changes nothing in the original, and the other way round",
    slug="clone-shared-state",
    why="Objects live in different contexts and threads; one must not see what another was configured for.",
    fix="copy lists, dicts, sets and arrays that the plugin changes; share only what is never written",
)
def judge_shared_state(subject: CheckedPlugin) -> None:
    """Take one of two twins through its life and compare the other before and after."""
    _ = subject.has_working_clone, subject.main_cell
    for is_clone_used in (True, False):
        original = subject.life.make_declared()
        clone = subject.life.clone(original)
        used, other = (clone, original) if is_clone_used else (original, clone)
        before = state_of(other)
        run_through_life(subject.life, used)
        changed = changes(before, state_of(other))
        if changed:
            names = ("the clone", "the original") if is_clone_used else ("the original", "the clone")
            raise Broken(f"using {names[0]} changed {names[1]}: {changed[0]}")


def run_through_life(life: Life, specimen: Specimen) -> None:
    """Attach an object and have what comes back configured and run, with every tactic and case."""
    for tactic in life.tactics[life.formats]:
        prepared = life.prepare(source=specimen, tactic=tactic)
        try:
            for case in life.problem.full_cases:
                prepared.reshape(case)
                prepared.run(case)
        except CallbackRaised as raised:
            raise Blocked(f"one object does not run all shapes: {raised.method} raised, see R48") from None


@rule(
    "R27",
    "A clone keeps the tactic that was set on the original",
    slug="clone-tactic",
    why="set_tactic is called once after a plan is loaded, and never on the clones that run.",
    fix="copy the attribute that set_tactic sets",
)
def judge_tactic(subject: CheckedPlugin) -> str:
    """Set a tactic, clone, and look for what set_tactic left in the original."""
    _ = subject.has_working_clone
    return find_dropped_tactic(subject, subject.life.clone, "clone")


def find_dropped_tactic(subject: CheckedPlugin, copy: Callable[[Specimen], Specimen], name: str) -> str:
    """Judge whether a copy has the attributes that ``set_tactic`` changes.

    Tactics compute the same, so the results do not tell which one runs; the attributes do.
    """
    tactics = subject.advertised_tactics()
    original = subject.life.make_declared()
    if len(tactics) > 1:
        subject.life.tell(original.runtime, "set_tactic", tactics[0])
    before = state_of(original)
    subject.life.tell(original.runtime, "set_tactic", tactics[-1])
    after = state_of(original)
    paths = [path for path in after if before.get(path) != after[path]]
    if not paths:
        raise NotApplicable("set_tactic leaves no trace in the attributes of the object")
    twin = state_of(copy(original))
    for path in paths:
        if twin.get(path) != after[path]:
            raise Broken(
                f"after set_tactic({tactics[-1]}), {path} is {after[path]!r} in the original "
                f"and {twin.get(path, 'not set')!r} in what {name} returned"
            )
    return f"{', '.join(paths)} kept"


@rule(
    "R28",
    "clone does no work: it is quick and allocates little",
    slug="clone-cheap",
    why="It is called many times during a build; weights copied in each clone fill the memory.",
    fix="share read-only weights with the clone, and put work into configure_plugin, on_shape_change or a resource",
)
def judge_cost(subject: CheckedPlugin) -> str:
    """Measure memory and time of a few clones."""
    _ = subject.has_working_clone
    specimen = subject.make()
    peak_bytes = traced_peak_bytes(lambda: call(specimen.plugin, "clone"))
    if peak_bytes > _MOST_CLONE_BYTES:
        raise Broken(f"clone allocated {peak_bytes} bytes, expected at most {_MOST_CLONE_BYTES}")
    if tracemalloc.is_tracing():
        raise Blocked("allocations are being traced, which makes times meaningless")
    least_s = _measure_clone_s(subject, specimen)
    if least_s > _MOST_CLONE_S:
        raise Broken(f"clone took {least_s * 1e3:.0f} ms, expected at most {_MOST_CLONE_S * 1e3:.0f} ms")
    return f"{peak_bytes} bytes"


def _measure_clone_s(subject: CheckedPlugin, specimen: Specimen) -> float:
    """The least time of a clone; a slow one is tried again, since the machine may have been busy with others."""
    least_s = math.inf
    for _ in range(_MOST_CLONES):
        start = time.perf_counter()
        subject.life.clone(specimen)
        least_s = min(least_s, time.perf_counter() - start)
        if least_s <= _MOST_CLONE_S:
            break
    return least_s
