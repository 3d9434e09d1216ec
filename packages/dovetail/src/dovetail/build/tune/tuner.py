"""The core of tuning: known timings are looked up, the others are measured, results are compared, all of it is kept.

It is the same for candidates of every kind. What they are, and how the fastest right one is used, is the business of
those who propose them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from dovetail.build.config import BuilderConfig, BuilderFlag, MemoryPoolType
from dovetail.build.progress import Phases
from dovetail.build.tune.agree import Result, Verdict, judge, judge_against
from dovetail.build.tune.cache import TimingValue
from dovetail.build.tune.candidates import Outcome, TimedCandidate
from dovetail.build.tune.clocks import Lane, open_lane
from dovetail.build.tune.measure import describe_error, measure
from dovetail.build.tune.session import CacheSession
from dovetail.build.tune.worker import CallTimeoutError, TimingWorker
from dovetail.errors import BuildError, TimingCacheError
from dovetail.loggers import ILogger, Severity
from dovetail.plan.untimed import DEVICE_IS_ABSENT
from dovetail.provider.interfaces import Provider

__all__ = ["CandidateTuner", "FindResult", "TunerOptions", "tuner_options"]

FindResult = Callable[[], Result | None]
"""Gives a result, where it is known."""


@dataclass(frozen=True, kw_only=True)
class TunerOptions:
    """What the tuner is allowed."""

    timeout_s: float
    workspace_bytes: int
    max_tactics: int
    error_on_cache_miss: bool
    strict: bool


def tuner_options(config: BuilderConfig) -> TunerOptions:
    """What a configuration allows the tuner."""
    return TunerOptions(
        timeout_s=config.tactic_timeout_s,
        workspace_bytes=config.get_memory_pool_limit(MemoryPoolType.WORKSPACE),
        max_tactics=config.max_num_tactics,
        error_on_cache_miss=config.get_flag(BuilderFlag.ERROR_ON_TIMING_CACHE_MISS),
        strict=config.strict,
    )


class CandidateTuner:
    """Tunes one question after the other, all on one worker thread."""

    def __init__(
        self, options: TunerOptions, session: CacheSession, logger: ILogger, phases: Phases | None = None
    ) -> None:
        self.options = options
        self.logger = logger
        self.worker = TimingWorker()
        self.worker.on_wait = self._tell_waiting
        self._phases = phases or Phases()
        self._running = ""
        """What the worker runs, in words."""
        self._session = session
        self._lanes: dict[str, Lane] = {}
        self._lanes_lock = threading.Lock()  # candidates may ask for their stream while they are timed
        self._turn = threading.Lock()  # providers may ask from the threads they compile in

    def find_lane(self, provider: Provider) -> Lane:
        """Where candidates of a provider run, opened when it is first asked for."""
        with self._lanes_lock:
            if provider.id not in self._lanes:
                self._lanes[provider.id] = open_lane(provider, lambda text: self.logger.log(Severity.WARNING, text))
            return self._lanes[provider.id]

    def close(self) -> None:
        """End the thread and the streams."""
        self.worker.close()
        for lane in self._lanes.values():
            lane.close()

    def tune(
        self, where: str, candidates: Sequence[TimedCandidate], lane: Lane, *, reference: FindResult | None = None
    ) -> dict[int, Outcome]:
        """Find out what each candidate is worth; a single one is not timed, for there is nothing to choose.

        All candidates are closed in the end.

        Args:
            where: What the candidates are for, in messages.
            candidates: In the order they are worth trying; the first is the default.
            lane: Where they run.
            reference: Gives the right result, where it is known; else candidates are compared with each other.

        Returns:
            The outcomes by id.

        Raises:
            TimingCacheError: Timings are missing, and the build is to fail then.
            BuildError: Candidates disagree, and the build is strict.
        """
        if len(candidates) > 1:
            return self.time(where, candidates, lane, reference=reference)
        try:
            return {candidate.id: _accept_untimed(candidate) for candidate in candidates}
        finally:
            self._close(candidates)

    def choose_untimed(self, candidates: Sequence[TimedCandidate]) -> dict[int, Outcome]:
        """Outcomes where nothing can run: the timings that the cache has, else the first candidate."""
        outcomes, reason = self._look_up(candidates), DEVICE_IS_ABSENT
        if candidates and not any(outcome.is_usable for outcome in outcomes.values()):
            outcomes[candidates[0].id] = Outcome("untimed", None, reason)
        for candidate in candidates:
            outcomes.setdefault(candidate.id, Outcome("refused", None, reason))
        self._close(candidates)
        return outcomes

    def time(
        self,
        where: str,
        candidates: Sequence[TimedCandidate],
        lane: Lane,
        *,
        reference: FindResult | None = None,
        max_rounds: int = 15,
        target_burst_us: float = 2500.0,
    ) -> dict[int, Outcome]:
        """Do as ``tune`` does, and time a single candidate too."""
        self.worker.check(self.options.timeout_s)  # a candidate that asks a question itself would wait for its own end
        with self._turn:
            trial = _CandidateTrial(self, where, candidates, reference)
            try:
                trial.outcomes.update(self._look_up(candidates))
                missing = [candidate for candidate in candidates if candidate.id not in trial.outcomes]
                if missing:
                    self._check_miss_allowed(where, missing)
                    trial.run(missing, lane, max_rounds=max_rounds, target_burst_us=target_burst_us)
                    for candidate in missing:
                        self._keep(candidate, trial.outcomes[candidate.id])
                self._tell_unchecked(where, trial.outcomes)
                return trial.outcomes
            finally:
                self._close([candidate for candidate in candidates if candidate.id not in trial.abandoned])

    def announce(self, where: str, candidate: TimedCandidate) -> TimedCandidate:
        """The candidate, which says that it runs whenever it is made ready."""

        def prepare() -> None:
            self.note_running(where, candidate)
            candidate.prepare()

        return replace(candidate, prepare=prepare)

    def note_running(self, where: str, candidate: TimedCandidate) -> None:
        """Remember what the worker runs from now on."""
        self._running = candidate.title or f"{candidate.label} of {where}"

    def _tell_waiting(self, seconds: float) -> None:
        self._phases.tell_waiting(self._running, seconds)

    def _close(self, candidates: Sequence[TimedCandidate]) -> None:
        for candidate in candidates:
            try:
                candidate.close()
            except Exception as error:  # noqa: BLE001 - one that fails must not keep the others open
                text = f"{candidate.label} could not be closed: {describe_error(error)}"
                self.logger.log(Severity.ERROR, text)

    def _look_up(self, candidates: Sequence[TimedCandidate]) -> dict[int, Outcome]:
        outcomes = {}
        for candidate in candidates:
            known = None if candidate.key is None else self._session.cache.query(candidate.key)
            if known is not None:
                status = "cached" if known.status == "timed" else known.status
                outcomes[candidate.id] = Outcome(
                    status, known.time_us, known.reason, known.low_us, known.high_us, known.rounds
                )
        return outcomes

    def _check_miss_allowed(self, where: str, missing: Sequence[TimedCandidate]) -> None:
        if self.options.error_on_cache_miss:
            fix = "build once without the flag and keep the cache"
            if missing[0].key is None:
                fix = "set timing_cache_id in the plugin, then build once without the flag"
            raise TimingCacheError(
                f"{len(missing)} timing(s) are not in the timing cache", where=where, got=missing[0].label, fix=fix
            )

    def _keep(self, candidate: TimedCandidate, outcome: Outcome) -> None:
        if candidate.key is not None:
            self._session.record(candidate.key, TimingValue(**asdict(outcome)))

    def _tell_unchecked(self, where: str, outcomes: Mapping[int, Outcome]) -> None:
        """Say that nothing was compared, as results are not finite or empty; timings that were kept say so too."""
        reasons = [outcome.reason for outcome in outcomes.values() if outcome.has_time and outcome.reason]
        if reasons:
            message = f"{where}: tactics could not be checked against each other: {reasons[0]}"
            self._object(message, fix="mend the layer if it should give numbers, or build without strict")

    def tell_disagreement(self, where: str, disagreement: str) -> None:
        """Tell that candidates disagree; a strict build ends."""
        message = f"{where}: tactics disagree and there is no reference: {disagreement}"
        self._object(message, fix="find the wrong tactic, or build without strict")

    def _object(self, message: str, *, fix: str) -> None:
        if self.options.strict:
            raise BuildError(message, fix=fix)
        self.logger.log(Severity.WARNING, message)


class _CandidateTrial:
    """The measuring for one question: the outcomes fill as it goes."""

    def __init__(
        self, tuner: CandidateTuner, where: str, candidates: Sequence[TimedCandidate], reference: FindResult | None
    ) -> None:
        self._tuner = tuner
        self._where = where
        self._all = candidates
        self._find_reference = reference
        self.outcomes: dict[int, Outcome] = {}
        self.abandoned: set[int] = set()
        """Candidates with a call that could not be stopped: what they use must be left as it is."""

    @cached_property
    def _reference(self) -> Result | None:
        """The right result, found when results are first compared."""
        return None if self._find_reference is None else self._find_reference()

    def run(self, missing: Sequence[TimedCandidate], lane: Lane, **effort: Any) -> None:
        """Measure and compare what is missing."""
        runnable = [candidate for candidate in missing if self._is_allowed(candidate)]
        self._measure(runnable, lane, **effort)
        self._compare([candidate for candidate in runnable if self.outcomes[candidate.id].status == "timed"])
        self._report(missing)

    def _is_allowed(self, candidate: TimedCandidate) -> bool:
        reason = candidate.check()
        if reason is not None:
            self.outcomes[candidate.id] = Outcome("refused", None, reason)
        return reason is None

    def _measure(self, candidates: Sequence[TimedCandidate], lane: Lane, **effort: Any) -> None:
        tuner = self._tuner
        results = measure(
            [tuner.announce(self._where, candidate) for candidate in candidates],
            timeout_s=tuner.options.timeout_s,
            worker=tuner.worker,
            clock=lane.clock,
            **effort,
        )
        for result in results:
            time_us, low_us, high_us = map(_round_us, (result.median_us, result.low_us, result.high_us))
            self.outcomes[result.id] = Outcome(result.status, time_us, result.reason, low_us, high_us, result.rounds)
            if result.is_abandoned:
                self.abandoned.add(result.id)

    def _report(self, candidates: Sequence[TimedCandidate]) -> None:
        for candidate in candidates:
            outcome = self.outcomes[candidate.id]
            if outcome.status in ("failed", "timeout", "wrong"):
                text = f"{self._where}: skipping {candidate.label}: {outcome.reason}"
                self._tuner.logger.log(Severity.WARNING, text)

    # results

    def _compare(self, timed: Sequence[TimedCandidate]) -> None:
        """Keep only candidates that agree; without a majority the default is kept, and strict builds end."""
        compared = [candidate for candidate in self._with_anchor(timed) if candidate.compute is not None]
        if len(compared) < (2 if self._reference is None else 1):
            return
        results = self._compute(compared)
        verdict = judge(results) if self._reference is None else judge_against(self._reference, results)
        for wrong, reason in verdict.wrong.items():
            self.outcomes[wrong] = replace(self.outcomes[wrong], status="wrong", reason=reason)
        self._tell(verdict)
        if verdict.unverified is not None:
            for number in results.keys() - verdict.wrong.keys():
                self.outcomes[number] = replace(self.outcomes[number], reason=verdict.unverified)

    def _with_anchor(self, timed: Sequence[TimedCandidate]) -> list[TimedCandidate]:
        """What was timed now, and one that was found right before, so that a newcomer is held against something."""
        now = {candidate.id for candidate in timed}
        if self._reference is not None or not timed:
            return list(timed)
        known = [c.id for c in self._all if c.id not in now and self.outcomes[c.id].has_time]
        return [candidate for candidate in self._all if candidate.id in now.union(known[:1])]

    def _compute(self, candidates: Sequence[TimedCandidate]) -> dict[int, Result]:
        results = {}
        for candidate in candidates:
            assert candidate.compute is not None  # noqa: S101 - the others are not compared
            self._tuner.note_running(self._where, candidate)
            try:
                results[candidate.id] = self._tuner.worker.call(candidate.compute, self._tuner.options.timeout_s)
            except CallTimeoutError as error:
                self.outcomes[candidate.id] = Outcome("timeout", None, error.what)
                if error.abandoned:
                    self.abandoned.add(candidate.id)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a candidate raises, it is skipped
                self.outcomes[candidate.id] = Outcome("failed", None, describe_error(error))
        return results

    def _tell(self, verdict: Verdict) -> None:
        if verdict.disagreement:
            self._tuner.tell_disagreement(self._where, verdict.disagreement)
        if verdict.note:
            text = f"{self._where}: tactics were compared in part: {verdict.note}"
            self._tuner.logger.log(Severity.INFO, text)


def _accept_untimed(candidate: TimedCandidate) -> Outcome:
    reason = candidate.check()
    return Outcome("refused", None, reason) if reason else Outcome("untimed", None, "the only way to run it")


def _round_us(time_us: float | None) -> float | None:
    """Times are kept to the nanosecond, so that a plan made from a cache equals the one that filled it."""
    return None if time_us is None else round(time_us, 3)
