"""Requirements on plugins: attributes and methods of their classes, and the error for a broken rule of the contract."""

from __future__ import annotations

from typing import Any, NoReturn

from dovetail.errors import PluginError

__all__ = ["RequiredAttribute", "broken_rule", "refuse_call"]


class RequiredAttribute:
    """An attribute that a subclass must set; reading it before says so."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type) -> Any:
        raise AttributeError(f"{owner.__name__}.{self._name} not initialized: set self.{self._name} in __init__")


def refuse_call(instance: object, method: str) -> NoReturn:
    """Say that a class lacks a method that the contract asks for."""
    raise NotImplementedError(f"{type(instance).__name__} must implement {method}")


def broken_rule(rule_id: str, what: str, *, where: str, got: object = None) -> PluginError:
    """Return the error for a plugin that breaks a rule of the contract while a plan is built or loaded.

    The expectation and the fix are the texts of the rule in ``dovetail check``, so that both reports agree.

    Args:
        rule_id: Identifier of the rule, such as ``R24``.
        what: Description of the failure.
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
