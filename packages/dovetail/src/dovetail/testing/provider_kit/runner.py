"""Judging a provider by every rule."""

from __future__ import annotations

from collections.abc import Collection

from dovetail.provider.calls import first_line
from dovetail.testing.provider_kit.report import ProviderOutcome, ProviderReport, ProviderStatus
from dovetail.testing.provider_kit.rules import (
    build,
    capability,
    capture,
    factory,
    life,
    memory,
    payload,
    profile,
    refit,
    results,
    runs,
    streams,
)
from dovetail.testing.provider_kit.rules.catalogue import ProviderRule, registered_rules
from dovetail.testing.provider_kit.subject import CheckedProvider
from dovetail.testing.provider_kit.verdicts import NotJudged, NotOffered, RuleBroken

__all__ = ["RULE_MODULES", "judge", "judge_all"]

RULE_MODULES = (
    factory,
    capability,
    build,
    payload,
    results,
    runs,
    memory,
    streams,
    capture,
    profile,
    refit,
    life,
)
"""The modules whose import registers all rules."""


def judge_all(subject: CheckedProvider, *, rules: Collection[str] | None = None) -> ProviderReport:
    """Judge by every rule, or by some, and let go of all engines."""
    chosen = [rule for rule in registered_rules() if rules is None or rule.id in rules]
    try:
        outcomes = tuple(judge(rule, subject) for rule in chosen)
    finally:
        subject.close()
    return ProviderReport(subject=f"provider '{subject.name}'", outcomes=outcomes)


def judge(rule: ProviderRule, subject: CheckedProvider) -> ProviderOutcome:
    """Judge by one rule; nothing that a provider does gets out of here."""
    try:
        return ProviderOutcome(rule=rule, status=ProviderStatus.PASSED, message=rule.judge(subject) or "")
    except RuleBroken as broken:
        return ProviderOutcome(rule=rule, status=ProviderStatus.FAILED, message=" ".join(str(broken).split()))
    except NotOffered as reason:
        return ProviderOutcome(rule=rule, status=ProviderStatus.NOT_OFFERED, message=str(reason))
    except NotJudged as reason:
        return ProviderOutcome(rule=rule, status=ProviderStatus.NOT_JUDGED, message=str(reason))
    except Exception as error:  # noqa: BLE001 - a provider can raise anything; the other rules must still be judged
        message = f"it raised {type(error).__name__}: {first_line(error)}"
        return ProviderOutcome(rule=rule, status=ProviderStatus.FAILED, message=message)
