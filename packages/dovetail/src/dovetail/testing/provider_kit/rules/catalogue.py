"""The catalogue of rules for providers: what each is called, why it is there, and the function that judges it.

A rule is a function over a ``CheckedProvider``, which the ``rule`` decorator collects when its module is imported. It
returns when the provider keeps the rule (a text is shown with the pass), and raises one of ``verdicts`` otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from dovetail.errors import InternalError

if TYPE_CHECKING:
    from dovetail.testing.provider_kit.subject import CheckedProvider

__all__ = ["Judge", "ProviderRule", "registered_rules", "rule"]

Judge = Callable[["CheckedProvider"], "str | None"]


@dataclass(frozen=True, kw_only=True)
class ProviderRule:
    """One rule of the provider contract."""

    id: str
    """``P`` and two digits; never given to another rule."""
    title: str
    """What a provider that keeps the rule does, as a sentence."""
    why: str
    """What goes wrong otherwise."""
    fix: str
    """What to change."""
    judge: Judge = field(repr=False, compare=False)


_RULES: Final[dict[str, ProviderRule]] = {}


def rule(id: str, title: str, *, why: str, fix: str) -> Callable[[Judge], Judge]:  # noqa: A002 - what reports call it
    """Register the decorated function as the judge of a rule."""

    def register(judge: Judge) -> Judge:
        if id in _RULES:
            raise InternalError(f"rule {id} is registered twice", where=judge.__module__)
        _RULES[id] = ProviderRule(id=id, title=title, why=why, fix=fix, judge=judge)
        return judge

    return register


def registered_rules() -> tuple[ProviderRule, ...]:
    """Every rule whose module was imported, by id."""
    return tuple(_RULES[key] for key in sorted(_RULES))
