"""The catalogue of rules: what each is called, why it is there, and the function that judges it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from dovetail.errors import InternalError

__all__ = ["Catalogue", "Judge", "Rule"]

S = TypeVar("S")
"""What the rules are about: a plugin, a back end."""

Judge = Callable[[S], "str | None"]
"""Returns when the rule is kept, with a text to show if there is one, and raises a ``RuleVerdict`` otherwise."""


@dataclass(frozen=True, kw_only=True)
class Rule(Generic[S]):
    """One rule of a contract.

    Attributes:
        id: A letter and two digits; never given to another rule.
        title: What somebody who keeps the rule does, as a sentence.
        why: What goes wrong otherwise.
        fix: What to change.
        slug: The name in file names, where the rule has a page.
        strict: Whether only the strict set has it.
        compares: Whether it holds results against each other and nothing else, so that it needs numbers to compare.
        judge: The function that decides.
    """

    id: str
    title: str
    why: str
    fix: str
    slug: str = ""
    strict: bool = False
    compares: bool = False
    judge: Judge[S] = field(repr=False, compare=False)

    @property
    def page(self) -> str:
        """Where the rule is explained, from the top of the repository."""
        return f"docs/rules/{self.id}-{self.slug}.md"


class Catalogue(Generic[S]):
    """The rules of one contract, collected by a decorator when their modules are imported.

    >>> catalogue: Catalogue[int] = Catalogue()
    >>> @catalogue.rule("X01", "It is even", why="Odd ones do not fit.", fix="add one")
    ... def judge_parity(number: int) -> None: ...
    >>> [rule.title for rule in catalogue.rules()]
    ['It is even']
    """

    def __init__(self) -> None:
        self._rules: dict[str, Rule[S]] = {}

    def rule(
        self,
        id: str,  # noqa: A002 - what reports call it
        title: str,
        *,
        why: str,
        fix: str,
        slug: str = "",
        strict: bool = False,
        compares: bool = False,
    ) -> Callable[[Judge[S]], Judge[S]]:
        """Register the decorated function as the judge of a rule."""

        def register(judge: Judge[S]) -> Judge[S]:
            if id in self._rules:
                raise InternalError(f"rule {id} is registered twice", where=judge.__module__)
            self._rules[id] = Rule(
                id=id, title=title, why=why, fix=fix, slug=slug, strict=strict, compares=compares, judge=judge
            )
            return judge

        return register

    def rules(self) -> tuple[Rule[S], ...]:
        """Every rule whose module was imported, by id."""
        return tuple(self._rules[key] for key in sorted(self._rules))
