"""What the checker hands back: one outcome a rule, and what the checker chose on its own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from dovetail.rules import RuleOutcome, RuleReport, Status

__all__ = ["Report"]


@dataclass(frozen=True, kw_only=True, repr=False)
class Report(RuleReport):
    """The outcome of every rule for one plugin, and what the checker chose on its own."""

    statuses: ClassVar[tuple[Status, ...]] = (Status.PASSED, Status.FAILED, Status.NOT_APPLICABLE)

    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data, ready for JSON."""
        data = super().to_dict()
        rules = data.pop("rules")
        return data | {"notes": list(self.notes), "rules": rules}

    def describe(self, outcome: RuleOutcome) -> dict[str, Any]:
        """One outcome as plain data."""
        rule = outcome.rule
        return {
            "id": rule.id,
            "slug": rule.slug,
            "title": rule.title,
            "status": str(outcome.status),
            "message": outcome.message,
            "fix": outcome.fix,
            "page": rule.page,
        }

    def advise(self, outcome: RuleOutcome) -> str:
        """The fix, and the page that explains the rule."""
        return f" | fix: {outcome.fix} | {outcome.rule.page}"

    def preface(self) -> Iterable[str]:
        """The subject, and what was tried."""
        yield from super().preface()
        yield from (f"note: {note}" for note in self.notes)
