"""The catalogue of rules: what each is called, why it is there, and the function that judges it.

A rule is a function over a ``CheckedPlugin``, which the ``rule`` decorator collects when its module is imported. It
returns when the plugin keeps the rule (a text is shown with the pass), and raises ``Broken`` or ``NotApplicable``
otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from dovetail.errors import InternalError

if TYPE_CHECKING:
    from dovetail.plugin.check.driver import CheckedPlugin

__all__ = ["Judge", "Rule", "registered_rules", "rule"]

Judge = Callable[["CheckedPlugin"], "str | None"]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One rule of the contract.

    Attributes:
        id: ``R`` and two digits; never given to another rule.
        slug: The name in file names.
        title: What a plugin that keeps the rule does, as a sentence.
        why: What goes wrong otherwise.
        fix: What to change.
        strict: Whether only the strict set has it.
        compares: Whether it holds results against each other and nothing else, so that it needs numbers to compare.
        judge: The function that decides.
    """

    id: str
    slug: str
    title: str
    why: str
    fix: str
    strict: bool = False
    compares: bool = False
    judge: Judge = field(repr=False, compare=False)

    @property
    def page(self) -> str:
        """Where the rule is explained, from the top of the repository."""
        return f"docs/rules/{self.id}-{self.slug}.md"


_RULES: Final[dict[str, Rule]] = {}


def rule(
    id: str,  # noqa: A002 - what reports call it
    slug: str,
    title: str,
    *,
    why: str,
    fix: str,
    strict: bool = False,
    compares: bool = False,
) -> Callable[[Judge], Judge]:
    """Register the decorated function as the judge of a rule."""

    def register(judge: Judge) -> Judge:
        if id in _RULES:
            raise InternalError(f"rule {id} is registered twice", where=judge.__module__)
        _RULES[id] = Rule(
            id=id, slug=slug, title=title, why=why, fix=fix, strict=strict, compares=compares, judge=judge
        )
        return judge

    return register


def registered_rules() -> tuple[Rule, ...]:
    """Every rule whose module was imported, by id."""
    return tuple(_RULES[key] for key in sorted(_RULES))
