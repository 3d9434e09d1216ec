"""What is tuned: candidates, each one way to do the same work, and what came of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from dovetail.build.tune.agree import Result
from dovetail.build.tune.measure import pick_lowest
from dovetail.plan.manifest import CandidateRecord

__all__ = ["Outcome", "TimedCandidate", "candidate_record", "pick_best"]


@dataclass(frozen=True, kw_only=True)
class TimedCandidate:
    """One way to do the work."""

    id: int
    """Ties are decided by it, lower first."""
    label: str
    """How messages name it."""
    title: str = ""
    """How progress names it, in few words; by default as messages do."""
    prepare: Callable[[], None]
    """Called before every burst and not timed: makes it ready."""
    run: Callable[[], None]
    """The work, once; on a device it is put on the stream of the lane."""
    key: str | None = None
    """The key of its timing; None where timings are not kept."""
    compute: Callable[[], Result] | None = None
    """One run over the inputs that all candidates get, for comparison; None where there is nothing to compare."""
    check: Callable[[], str | None] = lambda: None
    """Why it is not allowed to run, asked once before it does; None when it is."""
    close: Callable[[], None] = lambda: None
    """Gives back what it has, whether it ran or not; not called where a run of it could not be stopped."""


@dataclass(frozen=True)
class Outcome:
    """What came of one candidate."""

    status: str
    """"timed", "cached", "untimed", "failed", "timeout", "wrong" or "refused"."""
    time_us: float | None = None
    reason: str | None = None
    low_us: float | None = None
    """The 95% interval of the time."""
    high_us: float | None = None
    rounds: int = 0

    @property
    def is_usable(self) -> bool:
        """Whether the candidate may be chosen."""
        return self.status in ("timed", "cached", "untimed")

    @property
    def has_time(self) -> bool:
        """Whether it was measured, now or before."""
        return self.status in ("timed", "cached")


def pick_best(outcomes: Iterable[tuple[int, Outcome]]) -> int | None:
    """The id of the fastest usable candidate by the rule for ties; None when there is none.

    >>> pick_best([(0, Outcome("timed", 101.0)), (1, Outcome("timed", 100.0)), (2, Outcome("wrong", 1.0))])
    0
    """
    usable = [(number, outcome.time_us or 0.0) for number, outcome in outcomes if outcome.is_usable]
    return pick_lowest(usable) if usable else None


def candidate_record(
    outcome: Outcome, *, name: str, tactic: int, formats: Sequence[str] = (), chosen: bool = False
) -> CandidateRecord:
    """What a plan stores of a candidate."""
    return CandidateRecord(
        name=name,
        formats=list(formats),
        tactic=tactic,
        time_us=outcome.time_us,
        low_us=outcome.low_us,
        high_us=outcome.high_us,
        rounds=outcome.rounds,
        status=outcome.status,
        reason=outcome.reason,
        chosen=chosen,
    )
