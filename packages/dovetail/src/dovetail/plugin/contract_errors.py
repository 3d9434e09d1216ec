"""Errors for plugins that break a rule of ``docs/rules`` outside the checker."""

from __future__ import annotations

from dovetail.errors import PluginError

__all__ = ["broken_rule"]


def broken_rule(rule_id: str, what: str, *, where: str, got: object = None) -> PluginError:
    """Return the error for a plugin that breaks a rule of the contract while a plan is built or loaded.

    The expectation and the fix are the texts of the rule in ``dovetail check``, so that both reports agree.

    Args:
        rule_id: Identifier of the rule, such as ``R24``.
        what: What the plugin did.
        where: The plugin or the creator.
        got: The value that breaks the rule, where there is one.

    Returns:
        The error, to be raised by the caller.
    """
    from dovetail.plugin.check.explain import (
        find_rule,  # only when a plugin is refused: the checker is not part of a run
    )

    rule = find_rule(rule_id)
    return PluginError(what, where=where, expected=f"{rule.title} (rule {rule.id})", got=got, fix=rule.fix)
