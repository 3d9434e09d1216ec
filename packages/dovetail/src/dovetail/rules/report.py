"""What judging hands back: one outcome a rule, as data, as JSON and as plain lines."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from dovetail import markup
from dovetail.escapes import escape_line
from dovetail.rules.catalogue import Rule
from dovetail.rules.verdicts import Status

__all__ = ["RuleOutcome", "RuleReport", "Status"]

_MARKS: Final = {
    Status.PASSED: "PASS",
    Status.FAILED: "FAIL",
    Status.NOT_APPLICABLE: "N-A ",
    Status.NOT_OFFERED: "-   ",
    Status.NOT_JUDGED: "?   ",
}
_NAMED: Final = (Status.NOT_OFFERED, Status.NOT_JUDGED)
"""The statuses that a line spells out."""


@dataclass(frozen=True, kw_only=True)
class RuleOutcome:
    """One rule and how it ended; ``fix`` is set when it failed."""

    rule: Rule[Any]
    status: Status
    message: str = ""
    fix: str = ""

    def line(self) -> str:
        """The outcome in one line, without the advice."""
        parts = [f"{_MARKS[self.status]} {self.rule.id} {self.rule.title}"]
        if self.status in _NAMED:
            parts.append(self.status.replace("_", " "))
        if self.message:
            parts.append(self.message)
        return ": ".join(parts)


@dataclass(frozen=True, kw_only=True, repr=False)
class RuleReport:
    """The outcome of every rule; each contract says which statuses it counts and what it tells of an outcome."""

    statuses: ClassVar[tuple[Status, ...]] = tuple(Status)

    subject: str
    outcomes: tuple[RuleOutcome, ...]

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

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data, ready for JSON."""
        return {
            "subject": self.subject,
            "ok": self.ok,
            "counts": {str(status): len(self._with(status)) for status in self.statuses},
            "rules": [self.describe(outcome) for outcome in self.outcomes],
        }

    def describe(self, outcome: RuleOutcome) -> dict[str, Any]:
        """One outcome as plain data."""
        rule = outcome.rule
        return {"id": rule.id, "title": rule.title, "status": str(outcome.status), "message": outcome.message}

    def advise(self, outcome: RuleOutcome) -> str:
        """What the line of a failure ends with."""
        return f" | fix: {outcome.fix}"

    def render(self) -> str:
        """The report as plain lines: the subject, one line a rule, and the count."""
        return "\n".join(self._lines())

    def render_outcome(self, outcome: RuleOutcome) -> str:
        """One outcome as one line, with the advice when it failed."""
        return outcome.line() + (self.advise(outcome) if outcome.status is Status.FAILED else "")

    def __repr__(self) -> str:
        return escape_line(f"<{type(self).__name__} of {self.subject}: {self._counts()}>")

    def _repr_html_(self) -> str:
        """The count and the failures, with the other outcomes behind a click."""
        others = [outcome for outcome in self.outcomes if outcome.status is not Status.FAILED]
        parts = [markup.heading(self.subject, "ok" if self.ok else "failed"), markup.line(self._counts())]
        if self.failures:
            rows = [(o.rule.id, o.rule.title, o.message, o.fix) for o in self.failures]
            parts.append(markup.table(("rule", "what it says", "what happened", "fix"), rows))
        rows = [(o.rule.id, str(o.status).replace("_", " "), o.rule.title, o.message) for o in others]
        parts.append(markup.fold(f"Other rules ({len(others)})", markup.table(("rule", "", "what it says", ""), rows)))
        return markup.join(parts)

    def preface(self) -> Iterable[str]:
        """The lines before the outcomes."""
        yield f"checking {self.subject}"

    def _with(self, status: Status) -> tuple[RuleOutcome, ...]:
        return tuple(outcome for outcome in self.outcomes if outcome.status is status)

    def _lines(self) -> Iterable[str]:
        yield from self.preface()
        yield from map(self.render_outcome, self.outcomes)
        yield self._counts()

    def _counts(self) -> str:
        return ", ".join(f"{len(self._with(status))} {status.replace('_', ' ')}" for status in self.statuses)
