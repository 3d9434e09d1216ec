"""Judging by one rule: whatever it raises becomes an outcome."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from dovetail.rules.catalogue import Rule
from dovetail.rules.report import RuleOutcome
from dovetail.rules.verdicts import RuleVerdict, Status

__all__ = ["judge_rule"]

S = TypeVar("S")


def judge_rule(rule: Rule[S], subject: S, *, explain: Callable[[Exception], RuleVerdict]) -> RuleOutcome:
    """Judge by one rule; nothing gets out of here, so that the other rules are still judged.

    Args:
        rule: The rule.
        subject: What is judged.
        explain: Turns an exception that is no verdict into one.
    """
    try:
        return RuleOutcome(rule=rule, status=Status.PASSED, message=rule.judge(subject) or "")
    except RuleVerdict as verdict:
        return _conclude(rule, verdict)
    except Exception as error:  # noqa: BLE001 - what is judged can raise anything
        return _conclude(rule, explain(error))


def _conclude(rule: Rule[S], verdict: RuleVerdict) -> RuleOutcome:
    fix = (verdict.fix or rule.fix) if verdict.status is Status.FAILED else ""
    return RuleOutcome(rule=rule, status=verdict.status, message=" ".join(str(verdict).split()), fix=fix)
