"""Which candidate is fastest: interleaved bursts, medians with confidence intervals, and a rule for ties.

Every round runs a burst of every candidate that is still in the race, so that a machine that slows down slows all of
them. A candidate leaves the race when its interval lies above the best one's; the race ends when one is left, when the
rest cannot be told apart by the tie rule anyway, or after the last round.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from statistics import median
from typing import Any, Final, Literal, Protocol

from dovetail.build.tune.clocks import Clock, HostTimer
from dovetail.build.tune.worker import CallTimeoutError, TimingWorker
from dovetail.errors import UsageError
from dovetail.plugin.handle import locate_error

__all__ = [
    "TIE",
    "Measurement",
    "Runnable",
    "describe_error",
    "measure",
    "median_interval",
    "pick_lowest",
]

TIE: Final = 0.02
"""Times closer than this to the best count as equal."""

_LEVEL: Final = 0.95
_DECIDING_ROUNDS: Final = 4
"""The fewest samples that may decide: by chance, 4 lie below 4 others once in 70 times."""
_MAX_BURST: Final = 25
"""With the deciding rounds, about 100 runs of a fast kernel."""
_SLOW_BURSTS: Final = 10
"""A first run as long as this many bursts counts as a sample: such a kernel is too slow to warm it up for nothing."""
_MAX_REASON: Final = 500


class Runnable(Protocol):
    """What can be timed."""

    @property
    def id(self) -> int:
        """Number that tells it from the others."""
        ...

    @property
    def prepare(self) -> Callable[[], None]:
        """Called before every burst and not timed: sets the tactic, announces shapes."""
        ...

    @property
    def run(self) -> Callable[[], None]:
        """The work, once."""
        ...


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What came of one candidate: a median with its 95% interval over the rounds, or the reason there is none."""

    id: int
    median_us: float | None
    low_us: float | None
    high_us: float | None
    rounds: int
    runs: int
    status: Literal["timed", "failed", "timeout"]
    reason: str | None
    is_abandoned: bool = False
    """Whether a call could not be stopped, and may still use what it was given."""


def measure(
    candidates: Sequence[Runnable],
    *,
    timeout_s: float,
    max_rounds: int = 15,
    min_runs: int = 4,
    target_burst_us: float = 2500.0,
    worker: TimingWorker | None = None,
    clock: Clock | None = None,
) -> list[Measurement]:
    """Time candidates against each other.

    Args:
        candidates: What to time; ids are unique.
        timeout_s: How long any single call of ``prepare`` or ``run`` may take.
        max_rounds: When to give up telling candidates apart.
        min_runs: The fewest runs of a candidate that neither fails nor hangs (within ``max_rounds`` bursts).
        target_burst_us: How long a burst should take; a kernel slower than this runs once a round.
        worker: The thread to time on; by default one that lives for this call.
        clock: What times a burst; by default the host's clock.

    Returns:
        One measurement a candidate, in the order given.
    """
    _check_arguments(candidates, max_rounds=max_rounds, min_runs=min_runs, target_burst_us=target_burst_us)
    if worker is None:
        with TimingWorker() as own:
            return measure(
                candidates,
                timeout_s=timeout_s,
                max_rounds=max_rounds,
                min_runs=min_runs,
                target_burst_us=target_burst_us,
                worker=own,
                clock=clock,
            )
    worker.check(timeout_s)
    least = math.ceil(min_runs / min(_DECIDING_ROUNDS, max_rounds))
    runners = [_Runner(c, worker, clock or HostTimer(), timeout_s, target_burst_us, least) for c in candidates]
    for runner in runners:
        runner.warm_up()
    _race(runners, max_rounds)
    return [runner.result() for runner in runners]


def pick_lowest(times_us: Iterable[tuple[int, float]]) -> int:
    """The lowest id among the times within 2% of the best.

    >>> pick_lowest([(3, 100.0), (1, 101.9), (0, 102.1)])
    1
    """
    times_us = list(times_us)
    best_us = min(time_us for _, time_us in times_us)
    return min(candidate for candidate, time_us in times_us if time_us <= best_us * (1 + TIE))


def median_interval(samples: Sequence[float]) -> tuple[float, float]:
    """A 95% confidence interval of the median by order statistics, so it assumes nothing of how times are spread.

    Fewer than six samples reach no 95%; then it is all of them.

    >>> median_interval([5.0, 1.0, 3.0]), median_interval([float(i) for i in range(15)])
    ((1.0, 5.0), (3.0, 11.0))
    """
    ordered = sorted(samples)
    trim = _trimmed_ranks(len(ordered))
    return ordered[trim], ordered[-1 - trim]


@cache
def _trimmed_ranks(count: int) -> int:
    """How many samples to leave off at either end: the most for which the binomial tails stay within 5%."""
    trim, tails = 0, 2.0 / 2**count
    while trim + 1 < count / 2:
        tails += 2.0 * math.comb(count, trim + 1) / 2**count
        if tails > 1 - _LEVEL:
            break
        trim += 1
    return trim


def _check_arguments(candidates: Sequence[Runnable], *, max_rounds: int, min_runs: int, target_burst_us: float) -> None:
    repeated = [number for number, count in Counter(c.id for c in candidates).items() if count > 1]
    if repeated:
        raise UsageError("two candidates have the same id", got=repeated)
    if max_rounds < 1 or min_runs < 1 or not target_burst_us > 0:
        raise UsageError(
            "max_rounds, min_runs and target_burst_us must be positive", got=(max_rounds, min_runs, target_burst_us)
        )


def _race(runners: Sequence[_Runner], max_rounds: int) -> None:
    """Rounds until it is decided; every second one runs backwards, so that no candidate always follows the same."""
    for number in range(max_rounds):
        live = [runner for runner in runners if runner.live]
        for runner in live if number % 2 == 0 else reversed(live):
            if len(runner.samples_us) < max_rounds:
                runner.sample()
        if _is_decided([runner for runner in live if runner.live]):
            return


def _is_decided(live: list[_Runner]) -> bool:
    """Drop who is clearly slower; whether what is left needs no further round."""
    if any(len(runner.samples_us) < _DECIDING_ROUNDS for runner in live):
        return False
    best_high = min((runner.interval for runner in live), key=lambda i: i[1], default=(0.0, 0.0))[1]
    for runner in live:
        runner.live = runner.interval[0] <= best_high
    intervals = [runner.interval for runner in live if runner.live]
    if len(intervals) < 2:
        return True
    return max(high for _, high in intervals) <= min(low for low, _ in intervals) * (1 + TIE)


@dataclass
class _Runner:
    """One candidate in the race."""

    candidate: Runnable
    worker: TimingWorker
    clock: Clock
    timeout_s: float
    target_burst_us: float
    least: int
    live: bool = True
    runs: int = 0
    expected_us: float = 0.0
    samples_us: list[float] = field(default_factory=list)
    status: Literal["timed", "failed", "timeout"] = "timed"
    reason: str | None = None
    is_abandoned: bool = False

    @property
    def interval(self) -> tuple[float, float]:
        return median_interval(self.samples_us)

    def warm_up(self) -> None:
        """One run, to fill caches, to find failures early, and to know how many fit into a burst."""
        elapsed_us = self._burst(1)
        if elapsed_us is not None:
            self.expected_us = elapsed_us
            if self.least == 1 and elapsed_us >= _SLOW_BURSTS * self.target_burst_us:
                self.samples_us.append(elapsed_us)

    def sample(self) -> None:
        """One burst; the sample is its mean."""
        fitting = int(self.target_burst_us / max(self.expected_us, 1e-3))
        count = max(self.least, min(fitting, _MAX_BURST))
        elapsed_us = self._burst(count)
        if elapsed_us is not None:
            self.samples_us.append(elapsed_us / count)
            self.expected_us = median(self.samples_us)

    def result(self) -> Measurement:
        timed = self.status == "timed"
        low_us, high_us = self.interval if timed else (None, None)
        return Measurement(
            id=self.candidate.id,
            median_us=median(self.samples_us) if timed else None,
            low_us=low_us,
            high_us=high_us,
            rounds=len(self.samples_us),
            runs=self.runs,
            status=self.status,
            reason=self.reason,
            is_abandoned=self.is_abandoned,
        )

    def _burst(self, count: int) -> float | None:
        """The time of ``count`` runs in microseconds, or None when the candidate is out."""
        limit_s = self.timeout_s + count * self.expected_us / 1e6
        try:
            self._call("prepare", self.candidate.prepare, self.timeout_s)
            # On the worker's thread, so that no hand-over between threads is in the time.
            elapsed_us = self._call("run", lambda: self.clock.time_us(self.candidate.run, count), limit_s)
        except _OutError as out:
            self.live, self.status, self.reason = False, out.status, out.reason
            self.is_abandoned = out.is_abandoned
            return None
        self.runs += count
        return float(elapsed_us)

    def _call(self, method: str, function: Callable[[], Any], limit_s: float) -> Any:
        try:
            return self.worker.call(function, limit_s)
        except CallTimeoutError as error:
            raise _OutError("timeout", f"{method}: {error.what}", is_abandoned=error.abandoned) from error
        except (Exception, SystemExit) as error:  # a candidate may raise anything; that is recorded, and it is out
            raise _OutError("failed", f"{method}: {describe_error(error)}") from error


class _OutError(Exception):
    """A candidate is out of the race."""

    def __init__(self, status: Literal["failed", "timeout"], reason: str, *, is_abandoned: bool = False) -> None:
        self.status: Final = status
        self.is_abandoned = is_abandoned
        self.reason = reason[:_MAX_REASON].encode(errors="backslashreplace").decode()


def describe_error(error: BaseException) -> str:
    """Type, first line of the text, and the place it came from, which is that of the first cause."""
    cause = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    text, place = str(error).partition("\n")[0], locate_error(cause)
    return f"{type(error).__name__}: {text}" if place in text else f"{type(error).__name__}: {text} ({place})"
