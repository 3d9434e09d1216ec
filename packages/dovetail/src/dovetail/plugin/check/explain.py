"""The pages that explain the rules, one each, which come with the package."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from dovetail.errors import UsageError
from dovetail.plugin.check.rules.catalogue import registered_rules
from dovetail.rules import Rule

__all__ = ["explain_rule", "find_rule"]


def find_rule(rule_id: str) -> Rule[Any]:
    """Return a rule by its identifier.

    Raises:
        UsageError: There is no such rule.
    """
    rules = {rule.id: rule for rule in registered_rules()}
    rule = rules.get(rule_id.upper())
    if rule is None:
        raise UsageError(f"there is no rule '{rule_id}'", expected=f"{min(rules)} to {max(rules)}")
    return rule


def explain_rule(rule_id: str) -> str:
    """Return the page of a rule, as Markdown.

    Raises:
        UsageError: There is no such rule.
    """
    rule = find_rule(rule_id)
    page = files("dovetail.plugin.check").joinpath("pages", f"{rule.id}-{rule.slug}.md")
    return page.read_text(encoding="utf-8")
