"""Judging a provider by every rule."""

from __future__ import annotations

from collections.abc import Collection

from dovetail.provider.calls import first_line
from dovetail.rules import Broken, RuleVerdict, judge_rule
from dovetail.testing.provider_kit.report import ProviderReport
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
from dovetail.testing.provider_kit.rules.catalogue import registered_rules
from dovetail.testing.provider_kit.subject import CheckedProvider

__all__ = ["RULE_MODULES", "judge_all"]

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
        outcomes = tuple(judge_rule(rule, subject, explain=_explain) for rule in chosen)
    finally:
        subject.close()
    return ProviderReport(subject=f"provider '{subject.name}'", outcomes=outcomes)


def _explain(error: Exception) -> RuleVerdict:
    return Broken(f"it raised {type(error).__name__}: {first_line(error)}")
