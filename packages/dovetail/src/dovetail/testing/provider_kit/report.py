"""What the kit hands back: one outcome a rule, as data and as plain lines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from dovetail.errors import ProviderError
from dovetail.rules import RuleOutcome, RuleReport, Status

__all__ = ["ProviderReport"]


@dataclass(frozen=True, kw_only=True, repr=False)
class ProviderReport(RuleReport):
    """The outcome of every rule for one provider."""

    statuses: ClassVar[tuple[Status, ...]] = (Status.PASSED, Status.FAILED, Status.NOT_OFFERED, Status.NOT_JUDGED)

    def raise_for_failures(self) -> None:
        """Raise unless every rule that could be judged was kept.

        Raises:
            ProviderError: A rule failed; the message has a line for each.
        """
        if self.failures:
            lines = "".join(f"\n  {self.render_outcome(outcome)}" for outcome in self.failures)
            raise ProviderError(
                f"it breaks {len(self.failures)} rule(s) of the provider contract:{lines}", where=self.subject
            )

    def describe(self, outcome: RuleOutcome) -> dict[str, Any]:
        """One outcome as plain data."""
        return super().describe(outcome) | {"why": outcome.rule.why, "fix": outcome.fix}

    def advise(self, outcome: RuleOutcome) -> str:
        """Why the rule is there, and what to change."""
        return f" | why: {outcome.rule.why} | fix: {outcome.fix}"
