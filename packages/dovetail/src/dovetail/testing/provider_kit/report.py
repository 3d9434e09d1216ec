"""What the kit hands back: one outcome a rule, as data and as plain lines."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from dovetail.errors import ProviderError
from dovetail.testing.provider_kit.rules.catalogue import ProviderRule

__all__ = ["ProviderOutcome", "ProviderReport", "ProviderStatus"]


class ProviderStatus(StrEnum):
    """How a rule ended."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_OFFERED = "not_offered"
    NOT_JUDGED = "not_judged"


_MARKS: Final = {
    ProviderStatus.PASSED: "PASS",
    ProviderStatus.FAILED: "FAIL",
    ProviderStatus.NOT_OFFERED: "-   ",
    ProviderStatus.NOT_JUDGED: "?   ",
}


@dataclass(frozen=True, kw_only=True)
class ProviderOutcome:
    """One rule and how it ended."""

    rule: ProviderRule
    status: ProviderStatus
    message: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The outcome as plain data."""
        rule = self.rule
        return {
            "id": rule.id,
            "title": rule.title,
            "status": str(self.status),
            "message": self.message,
            "why": rule.why,
            "fix": rule.fix if self.status is ProviderStatus.FAILED else "",
        }

    def render(self) -> str:
        """The outcome as one line."""
        line = f"{_MARKS[self.status]} {self.rule.id} {self.rule.title}"
        if self.status in (ProviderStatus.NOT_OFFERED, ProviderStatus.NOT_JUDGED):
            line += f": {self.status.replace('_', ' ')}"
        if self.message:
            line += f": {self.message}"
        return f"{line} | why: {self.rule.why} | fix: {self.rule.fix}" if self._has_failed else line

    @property
    def _has_failed(self) -> bool:
        return self.status is ProviderStatus.FAILED


@dataclass(frozen=True, kw_only=True)
class ProviderReport:
    """The outcome of every rule for one provider."""

    subject: str
    outcomes: tuple[ProviderOutcome, ...]

    @property
    def ok(self) -> bool:
        """Whether no rule failed."""
        return not self.failures

    @property
    def failures(self) -> tuple[ProviderOutcome, ...]:
        """The rules that failed."""
        return self._with(ProviderStatus.FAILED)

    @property
    def failed_ids(self) -> frozenset[str]:
        """The ids of the rules that failed."""
        return frozenset(outcome.rule.id for outcome in self.failures)

    def outcome(self, rule_id: str) -> ProviderOutcome:
        """The outcome of one rule."""
        return next(outcome for outcome in self.outcomes if outcome.rule.id == rule_id)

    def raise_for_failures(self) -> None:
        """Raise unless every rule that could be judged was kept.

        Raises:
            ProviderError: A rule failed; the message has a line for each.
        """
        if self.failures:
            lines = "".join(f"\n  {outcome.render()}" for outcome in self.failures)
            raise ProviderError(
                f"it breaks {len(self.failures)} rule(s) of the provider contract:{lines}", where=self.subject
            )

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data, ready for JSON."""
        return {
            "subject": self.subject,
            "ok": self.ok,
            "counts": {str(status): len(self._with(status)) for status in ProviderStatus},
            "rules": [outcome.to_dict() for outcome in self.outcomes],
        }

    def render(self) -> str:
        """The report as plain lines: the subject, one line a rule, and the count."""
        return "\n".join(self._lines())

    def _with(self, status: ProviderStatus) -> tuple[ProviderOutcome, ...]:
        return tuple(outcome for outcome in self.outcomes if outcome.status is status)

    def _lines(self) -> Iterable[str]:
        yield f"checking {self.subject}"
        yield from (outcome.render() for outcome in self.outcomes)
        yield ", ".join(f"{len(self._with(status))} {status.replace('_', ' ')}" for status in ProviderStatus)
