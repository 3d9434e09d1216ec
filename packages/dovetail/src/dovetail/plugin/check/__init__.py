"""The contract checker: takes a plugin through its whole life against a hostile host and judges it by every rule.

``check_creator``, ``check_plugin`` and ``check_path`` return a ``Report`` with one outcome a rule. The rules are
explained one page each in ``docs/rules``, which ``explain_rule`` gives too.
"""

from __future__ import annotations

from dovetail.plugin.check.entry import check_creator, check_path, check_plugin, parse_case
from dovetail.plugin.check.explain import explain_rule
from dovetail.plugin.check.report import Report
from dovetail.plugin.check.rules.catalogue import registered_rules
from dovetail.rules import Rule, RuleOutcome, Status

__all__ = [
    "Report",
    "Rule",
    "RuleOutcome",
    "Status",
    "check_creator",
    "check_path",
    "check_plugin",
    "explain_rule",
    "parse_case",
    "registered_rules",
]
