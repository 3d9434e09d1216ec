"""What the checker hands back: one outcome a rule, as data, as JSON and as plain lines."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from dovetail.plugin.check.rules.catalogue import Rule

__all__ = ["Report", "RuleOutcome", "Status"]


class Status(StrEnum):
    """How a rule ended."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_APPLICABLE = "not_applicable"


_MARKS: Final = {Status.PASSED: "PASS", Status.FAILED: "FAIL", Status.NOT_APPLICABLE: "N-A "}


@dataclass(frozen=True, kw_only=True)
class RuleOutcome:
    """One rule and how it ended; ``fix`` is set when it failed."""

    rule: Rule
    status: Status
    message: str = ""
    fix: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The outcome as plain data."""
        return {
            "id": self.rule.id,
            "slug": self.rule.slug,
            "title": self.rule.title,
            "status": str(self.status),
            "message": self.message,
            "fix": self.fix,
            "page": self.rule.page,
        }

    def render(self) -> str:
        """The outcome as one line."""
        line = f"{_MARKS[self.status]} {self.rule.id} {self.rule.title}"
        if self.message:
            line += f": {self.message}"
        if self.status is Status.FAILED:
            line += f" | fix: {self.fix} | {self.rule.page}"
        return line


@dataclass(frozen=True, kw_only=True)
class Report:
    """The outcome of every rule for one plugin, and what the checker chose on its own."""

    subject: str
    outcomes: tuple[RuleOutcome, ...]
    notes: tuple[str, ...] = field(default=())

    @property
    def ok(self) -> bool:
        """Whether no rule failed."""
        return not self.failures

    @property
    def failures(self) -> tuple[RuleOutcome, ...]:
        """The rules that failed."""
        return self._with(Status.FAILED)

    @property
    def failed_ids(self) -> frozenset[str]:
        """The ids of the rules that failed."""
        return frozenset(outcome.rule.id for outcome in self.failures)

    def outcome(self, rule_id: str) -> RuleOutcome:
        """The outcome of one rule."""
        return next(outcome for outcome in self.outcomes if outcome.rule.id == rule_id)

    def _with(self, status: Status) -> tuple[RuleOutcome, ...]:
        return tuple(outcome for outcome in self.outcomes if outcome.status is status)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data, ready for JSON."""
        return {
            "subject": self.subject,
            "ok": self.ok,
            "counts": {str(status): len(self._with(status)) for status in Status},
            "notes": list(self.notes),
            "rules": [outcome.to_dict() for outcome in self.outcomes],
        }

    def render(self) -> str:
        """The report as plain lines: the subject, what was tried, one line a rule, and the count."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterable[str]:
        yield f"checking {self.subject}"
        yield from (f"note: {note}" for note in self.notes)
        yield from (outcome.render() for outcome in self.outcomes)
        passed, failed, other = (len(self._with(status)) for status in Status)
        yield f"{passed} passed, {failed} failed, {other} not applicable"
