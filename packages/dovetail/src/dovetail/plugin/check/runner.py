"""Judging a plugin by every rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from dovetail.plugin.check.driver import CheckedPlugin
from dovetail.plugin.check.host.calls import OWNERS, CallbackRaised, blocked_by, journal
from dovetail.plugin.check.rules import (
    attach,
    clone,
    configure,
    create,
    declare,
    formats,
    processes,
    results,
    run,
    serialize,
    strict,
    threads,
)
from dovetail.plugin.check.rules.catalogue import registered_rules
from dovetail.rules import Broken, Rule, RuleOutcome, RuleVerdict, Status, judge_rule

__all__ = ["RULE_MODULES", "judge", "judge_all"]

PluginRule = Rule[CheckedPlugin]

RULE_MODULES = (
    create,
    declare,
    formats,
    configure,
    clone,
    attach,
    serialize,
    run,
    results,
    threads,
    strict,
    processes,
)
"""The modules whose import registers all rules."""


def judge_all(subject: CheckedPlugin, tell: Callable[[RuleOutcome], None]) -> tuple[str, ...]:
    """Judge by every rule, tell each outcome at once, let go of all objects that were made, and give the notes.

    A rule is told twice when a later one finds a raise that it owns; the second time counts.
    """
    outcomes: dict[str, RuleOutcome] = {}
    try:
        journal().rule_id = ""
        subject.live()
        for rule in registered_rules():
            journal().rule_id = rule.id
            outcomes[rule.id] = judge(rule, subject)
            tell(outcomes[rule.id])
        for outcome in _find_unreported(subject, outcomes):
            tell(outcome)
        subject.note_gaps()
    finally:
        subject.destroy_all()
    return tuple(subject.notes)


def _find_unreported(subject: CheckedPlugin, outcomes: Mapping[str, RuleOutcome]) -> Iterator[RuleOutcome]:
    """The outcomes of rules that own a raise which was seen only after they had been judged."""
    told = " ".join(outcome.message for outcome in outcomes.values() if outcome.status is Status.FAILED)
    for raised in subject.log.raised:
        owner = outcomes[OWNERS.get(raised.method, "R18")]
        if owner.status is not Status.FAILED and str(raised) not in told:
            yield RuleOutcome(rule=owner.rule, status=Status.FAILED, message=str(raised), fix=owner.rule.fix)


def judge(rule: PluginRule, subject: CheckedPlugin) -> RuleOutcome:
    """Judge by one rule; nothing that a plugin does gets out of here."""
    if rule.strict and not subject.strict:
        return RuleOutcome(rule=rule, status=Status.NOT_APPLICABLE, message="only in the strict set")
    outcome = judge_rule(rule, subject, explain=partial(_explain, rule, subject))
    return _require_numbers(outcome, subject)


def _require_numbers(outcome: RuleOutcome, subject: CheckedPlugin) -> RuleOutcome:
    """A rule that does nothing but compare results is not kept by results without a number."""
    if outcome.status is not Status.PASSED or not outcome.rule.compares or subject.hollow_output is None:
        return outcome
    return RuleOutcome(rule=outcome.rule, status=Status.NOT_APPLICABLE, message=subject.hollow_output)


def _explain(rule: PluginRule, subject: CheckedPlugin, error: Exception) -> RuleVerdict:
    if isinstance(error, CallbackRaised):
        return _judge_raise(rule, subject, error)
    # A plugin can return anything.
    return Broken(f"what the plugin returned could not be judged: {type(error).__name__}: {error}")


def _judge_raise(rule: PluginRule, subject: CheckedPlugin, raised: CallbackRaised) -> RuleVerdict:
    """A callback that raises in any life is reported once, by its owner; one that raises only here is reported here."""
    is_known = any(known.method == raised.method for known in subject.log.raised)
    if is_known and OWNERS.get(raised.method) != rule.id:
        return blocked_by(raised)
    if not is_known and OWNERS.get(raised.method) == rule.id:
        subject.log.raised.append(raised)
    return Broken(str(raised))
