"""Judging by rules: a rule, a catalogue of them, how a rule ends, and the report of all outcomes.

The checker of plugins and the test kit of back ends are two sets of rules over this one machinery. A rule is a function
over the thing that is judged; what it raises says how it ended, and returning means that the rule is kept.
"""

from __future__ import annotations

from dovetail.rules.catalogue import Catalogue, Rule
from dovetail.rules.report import RuleOutcome, RuleReport, Status
from dovetail.rules.runner import judge_rule
from dovetail.rules.verdicts import Blocked, Broken, NotApplicable, NotJudged, NotOffered, RuleVerdict

__all__ = [
    "Blocked",
    "Broken",
    "Catalogue",
    "NotApplicable",
    "NotJudged",
    "NotOffered",
    "Rule",
    "RuleOutcome",
    "RuleReport",
    "RuleVerdict",
    "Status",
    "judge_rule",
]
