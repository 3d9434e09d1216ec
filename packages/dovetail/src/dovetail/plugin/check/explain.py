"""The pages that explain the rules, one each, which come with the package."""

from __future__ import annotations

from importlib.resources import files

from dovetail.errors import UsageError
from dovetail.plugin.check.rules.catalogue import registered_rules

__all__ = ["explain_rule"]


def explain_rule(rule_id: str) -> str:
    """The page of a rule, as Markdown.

    Raises:
        UsageError: There is no such rule.
    """
    rules = {rule.id: rule for rule in registered_rules()}
    rule = rules.get(rule_id.upper())
    if rule is None:
        raise UsageError(f"there is no rule '{rule_id}'", expected=f"{min(rules)} to {max(rules)}")
    page = files("dovetail.plugin.check").joinpath("pages", f"{rule.id}-{rule.slug}.md")
    return page.read_text(encoding="utf-8")
