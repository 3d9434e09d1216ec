"""Rules about ``attach_to_context``: R29 to R33."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from dovetail.plugin.check.driver import CheckedPlugin
from dovetail.plugin.check.host.calls import call
from dovetail.plugin.check.host.hostile import HostContext
from dovetail.plugin.check.lifecycle import Prepared
from dovetail.plugin.check.plugin_object import Specimen, examine
from dovetail.plugin.check.rules.catalogue import rule
from dovetail.plugin.check.rules.clone import find_dropped_tactic, run_through_life
from dovetail.plugin.check.state import changes, state_of
from dovetail.plugin.check.traits import Traits, first_difference, identity_of, parameters_of
from dovetail.rules import Blocked, Broken, NotApplicable
from dovetail.types import TensorRTPhase

__all__: list[str] = []

T = TypeVar("T")


@rule(
    "R29",
    "attach_to_context gives a new object each time",
    slug="attach-new",
    why="Each execution context runs and destroys an object of its own.",
    fix="return self.clone(), attached to the context that was passed",
)
def judge_attach(subject: CheckedPlugin) -> None:
    """Attach one object to two contexts."""
    specimen = subject.make()
    plugins = [specimen.plugin]
    for number in (1, 2):
        plugin = call(specimen.runtime, "attach_to_context", HostContext(f"context {number}"))
        if any(plugin is other for other in plugins):
            which = "the object itself" if plugin is specimen.plugin else "the object of the first context"
            raise Broken(f"attach_to_context returned {which}, expected a new one")
        subject.keep(examine(plugin, TensorRTPhase.BUILD, made_by="attach_to_context"))
        plugins.append(plugin)


@rule(
    "R30",
    "An attached object has the parameters of the original",
    slug="attach-parameters",
    why="Attaching is asked to clone the whole plugin; only attached objects run.",
    fix="clone the whole object in attach_to_context, not the runtime capability alone",
)
def judge_parameters(subject: CheckedPlugin) -> str:
    """Compare names and fields of an attached object with those of the original."""
    _ = subject.has_working_attach
    original = subject.life.make_declared()
    expected = identity_of(original) | parameters_of(subject, original)
    attached = subject.life.attach(original)
    found = first_difference(identity_of(attached) | parameters_of(subject, attached), expected)
    if found:
        _require_good_clone(subject, original, expected)
        raise Broken(f"on an attached object {found}")
    return f"{len(expected)} traits compared"


def _require_good_clone(subject: CheckedPlugin, original: Specimen, expected: Traits) -> None:
    """Mostly attach_to_context clones; what the clone has lost already is told where clones are judged."""
    clone = subject.life.clone(original)
    if clone.plugin is not original.plugin and first_difference(
        identity_of(clone) | parameters_of(subject, clone), expected
    ):
        raise Blocked("a clone has lost parameters already, see R25")


@rule(
    "R31",
    "An attached object keeps the tactic that was set on the original",
    slug="attach-tactic",
    why="A loaded plan sets the tactic before contexts exist, and never on the objects that run in them.",
    fix="copy the attribute that set_tactic sets",
)
def judge_tactic(subject: CheckedPlugin) -> str:
    """Set a tactic, attach, and look for what set_tactic left in the original."""
    _ = subject.has_working_attach
    try:
        find_dropped_tactic(subject, subject.life.clone, "clone")
    except Broken:
        raise Blocked("a clone loses the tactic already, see R27") from None
    return find_dropped_tactic(subject, subject.life.attach, "attach_to_context")


@rule(
    "R32",
    "Attaching and using what comes back changes nothing in the original",
    slug="attach-shared-state",
    why="The original is attached to the next context, possibly while the first one runs.",
    fix="keep the context in the new object, and copy what the plugin changes",
)
def judge_shared_state(subject: CheckedPlugin) -> None:
    """Attach, run the attached object, and compare the original before and after."""
    _ = subject.has_working_attach, subject.main_cell
    original = subject.life.make_declared()
    before = state_of(original)
    subject.life.attach(original)
    changed = changes(before, state_of(original))
    if changed:
        raise Broken(f"attach_to_context changed the original: {changed[0]}")
    run_through_life(subject.life, original)
    changed = changes(before, state_of(original))
    if changed:
        raise Broken(f"using the attached object changed the original: {changed[0]}")


@rule(
    "R33",
    "An attached object uses the resources of its own context alone",
    slug="attach-own-context",
    why="Another context may run in another thread, and its resources are gone once it is destroyed.",
    fix="keep the context in the attached object, never in the class, the module or the original",
)
def judge_own_context(subject: CheckedPlugin) -> str:
    """Attach to two contexts and watch which of them is used while each object works."""
    _ = subject.has_working_attach, subject.main_cell
    uses: list[str] = []
    contexts = [HostContext(f"context {number}", uses) for number in (1, 2)]
    original, life = subject.life.make_declared(), subject.life
    prepared: list[Prepared] = []
    for context in contexts:
        prepared.append(_watch(uses, context, partial(life.prepare, source=original, context=context)))
    for _ in range(2):
        for context, item in zip(contexts, prepared, strict=True):
            _watch(uses, context, partial(item.reshape, life.problem.main))
            _watch(uses, context, partial(item.run, life.problem.main))
    if not uses:
        raise NotApplicable("the plugin asks for no resource of its context")
    return f"{len(uses)} uses watched"


def _watch(uses: list[str], owner: HostContext, action: Callable[[], T]) -> T:
    start = len(uses)
    result = action()
    strangers = [name for name in uses[start:] if name != owner.name]
    if strangers:
        raise Broken(f"the object of {owner.name} used the resources of {strangers[0]}")
    return result
