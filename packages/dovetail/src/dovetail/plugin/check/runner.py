"""Judging a plugin by every rule."""

from __future__ import annotations

from dovetail.plugin.check.driver import CheckedPlugin
from dovetail.plugin.check.host.calls import OWNERS, CallbackRaised, blocked_by
from dovetail.plugin.check.report import Report, RuleOutcome, Status
from dovetail.plugin.check.rules import (
    attach,
    clone,
    configure,
    create,
    declare,
    formats,
    results,
    run,
    serialize,
    strict,
    threads,
)
from dovetail.plugin.check.rules.catalogue import Rule, registered_rules
from dovetail.plugin.check.verdicts import Broken, NotApplicable

__all__ = ["RULE_MODULES", "judge", "judge_all"]

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
)
"""The modules whose import registers all rules."""


def judge_all(subject: CheckedPlugin, *, name: str) -> Report:
    """Judge by every rule, then let go of all objects that were made."""
    try:
        subject.live()
        outcomes = tuple(judge(rule, subject) for rule in registered_rules())
        subject.note_gaps()
    finally:
        subject.destroy_all()
    return Report(subject=name, outcomes=outcomes, notes=tuple(subject.notes))


def judge(rule: Rule, subject: CheckedPlugin) -> RuleOutcome:
    """Judge by one rule; nothing that a plugin does gets out of here."""
    if rule.strict and not subject.strict:
        return RuleOutcome(rule=rule, status=Status.NOT_APPLICABLE, message="only in the strict set")
    try:
        message = rule.judge(subject)
        if rule.compares and subject.hollow_output is not None:
            raise NotApplicable(subject.hollow_output)
    except Broken as broken:
        return RuleOutcome(rule=rule, status=Status.FAILED, message=str(broken), fix=broken.fix or rule.fix)
    except NotApplicable as reason:
        return RuleOutcome(rule=rule, status=Status.NOT_APPLICABLE, message=str(reason))
    except CallbackRaised as raised:
        return _judge_raise(rule, subject, raised)
    except Exception as error:  # noqa: BLE001 - a plugin can return anything; the other rules must still be judged
        message = f"what the plugin returned could not be judged: {type(error).__name__}: {error}"
        return RuleOutcome(rule=rule, status=Status.FAILED, message=" ".join(message.split()), fix=rule.fix)
    return RuleOutcome(rule=rule, status=Status.PASSED, message=message or "")


def _judge_raise(rule: Rule, subject: CheckedPlugin, raised: CallbackRaised) -> RuleOutcome:
    """A callback that raises in any life is reported once, by its owner; one that raises only here is reported here."""
    is_known = any(known.method == raised.method for known in subject.log.raised)
    if is_known and OWNERS.get(raised.method) != rule.id:
        return RuleOutcome(rule=rule, status=Status.NOT_APPLICABLE, message=str(blocked_by(raised)))
    if not is_known and OWNERS.get(raised.method) == rule.id:
        subject.log.raised.append(raised)
    return RuleOutcome(rule=rule, status=Status.FAILED, message=str(raised), fix=rule.fix)
