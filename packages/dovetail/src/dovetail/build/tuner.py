"""Tuning one plugin layer: every accepted combination and tactic, timed, checked against each other, and cached.

The order of calls on the plugin is the contract's: enumeration, timing cache ID, enumeration again, then for each
combination attach, configure and tactics, and for each tactic set_tactic, workspace, shapes and runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from dovetail._version import __version__
from dovetail.allocators import HostAllocator, IGpuAllocator
from dovetail.build.agree import judge
from dovetail.build.enumerate import Combination, Enumeration, enumerate_combinations
from dovetail.build.measure import Candidate, measure, pick_lowest
from dovetail.build.timing_cache import TimingCache, TimingValue, make_key
from dovetail.build.trial import PluginLayer, Trial, dynamic_descs, workspace_descs
from dovetail.build.worker import TimingWorker
from dovetail.errors import BuildError, PluginError, TimingCacheError
from dovetail.loggers import ErrorRecorder, IErrorRecorder, ILogger, Severity
from dovetail.plan.manifest import CandidateRecord
from dovetail.plugin.handle import PluginHandle, locate_error
from dovetail.plugin.interfaces import IPluginResourceContext
from dovetail.provider.loader import get_provider

__all__ = [
    "Choice",
    "NoFormatError",
    "PluginTuner",
    "TunedLayer",
    "TunerOptions",
    "cache_identity",
    "round_us",
]


class NoFormatError(BuildError):
    """A plugin accepted none of the types and formats that were proposed."""


def cache_identity(provider: str = "cpu") -> tuple[str, str]:
    """The device and the version that timings belong to."""
    return get_provider(provider).device.fingerprint, __version__


def round_us(time_us: float | None) -> float | None:
    """Times are kept to the nanosecond, so that a plan made from a cache equals the one that filled it."""
    return None if time_us is None else round(time_us, 3)


@dataclass(frozen=True, kw_only=True)
class TunerOptions:
    """What the tuner is allowed."""

    timeout_s: float
    workspace_bytes: int
    max_tactics: int
    error_on_cache_miss: bool
    strict: bool


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One usable way to run the layer: a combination with its best tactic."""

    combination: Combination
    tactic: int
    time_us: float


@dataclass
class TunedLayer:
    """What is left to choose from, and the whole table."""

    choices: list[Choice] = field(default_factory=list)
    table: list[CandidateRecord] = field(default_factory=list)


class _BuildContext(IPluginResourceContext):
    """The resource context of the builder."""

    def __init__(self) -> None:
        self._allocator, self._recorder = HostAllocator(), ErrorRecorder()

    @property
    def gpu_allocator(self) -> IGpuAllocator:
        return self._allocator

    @property
    def error_recorder(self) -> IErrorRecorder:
        return self._recorder


class PluginTuner:
    """Times plugins one layer after the other, all on one worker thread."""

    def __init__(
        self,
        options: TunerOptions,
        cache: TimingCache,
        logger: ILogger,
        record: Callable[[str, TimingValue], None],
    ) -> None:
        self._options = options
        self._cache = cache
        self._logger = logger
        self._record = record
        self.worker = TimingWorker()
        self.timeout_s = options.timeout_s
        self.context = _BuildContext()
        self._hung: set[int] = set()
        self.num_timed = 0

    def close(self) -> None:
        """Stop the worker thread."""
        self.worker.close()

    def tune(self, layer: PluginLayer) -> TunedLayer:
        """Find every way to run the layer and how long each takes."""
        enumeration = enumerate_combinations(layer.handle, layer.ports, layer.num_inputs)
        self._report_exceptions(layer, enumeration)
        if not enumeration.accepted:
            raise _no_combination(layer, enumeration)
        cache_id = layer.handle.timing_cache_id
        again = enumerate_combinations(layer.handle, layer.ports, layer.num_inputs)
        if again.accepted != enumeration.accepted:
            self._logger.log(
                Severity.WARNING,
                f"{layer.handle.where}: supports_format_combination gave different answers to the same questions; "
                "the second set is used (rule: it must be pure)",
            )
        self._hung.clear()
        trials = self._make_trials(layer, again.accepted or enumeration.accepted)
        try:
            return self._time(layer, trials, cache_id, enumeration)
        finally:
            for trial in trials:
                # What a thread that could not be stopped may still use is never destroyed.
                if trial.id not in self._hung:
                    trial.handle.destroy(self._logger)

    def ask_workspace(self, layer: PluginLayer, handle: PluginHandle, combination: Combination) -> int:
        """Bytes of scratch memory; an answer that is none counts as 0 by the contract, but is logged as an error."""
        try:
            return handle.get_workspace_size(*workspace_descs(layer, combination))
        except PluginError as error:
            if self._options.strict:
                raise
            self._logger.log(Severity.ERROR, f"layer '{layer.name}': {error}\n  the plugin gets no workspace")
            return 0

    def _report_exceptions(self, layer: PluginLayer, enumeration: Enumeration) -> None:
        """An exception is a refusal by the contract, but one that its author should hear of."""
        for (pos, layout), reason in enumeration.raised.items():
            self._logger.log(
                Severity.ERROR,
                f"layer '{layer.name}', {layer.handle.where}: supports_format_combination(pos={pos}) {reason}; "
                f"{layout} counts as refused",
            )

    # trials

    def _make_trials(self, layer: PluginLayer, combinations: Sequence[Combination]) -> list[Trial]:
        trials: list[Trial] = []
        for combination in combinations:
            if not _respects_aliases(layer, combination):
                continue
            attached = self._attach(layer, combination)
            tactics = attached.get_valid_tactics() or [0]
            if self._options.max_tactics > 0:
                tactics = tactics[: self._options.max_tactics]
            # Each tactic runs on an object of its own: one that hangs may still be running when the next is timed.
            handles = [attached, *(self._attach(layer, combination) for _ in tactics[1:])]
            for tactic, handle in zip(tactics, handles, strict=True):
                trials.append(Trial(len(trials), layer, combination, tactic, handle))
        if not trials:
            raise BuildError(
                "no combination gives aliased inputs and outputs the same layout",
                where=layer.handle.where,
                fix="accept equal type and format on both sides of an alias",
            )
        return trials

    def _attach(self, layer: PluginLayer, combination: Combination) -> PluginHandle:
        attached = layer.handle.attach_to_context(self.context)
        attached.configure(*dynamic_descs(layer, combination))
        return attached

    def _time(
        self, layer: PluginLayer, trials: list[Trial], cache_id: str | None, enumeration: Enumeration
    ) -> TunedLayer:
        outcomes: dict[int, tuple[str, float | None, str | None]] = {}
        keys = {t.id: self._key(layer, t, cache_id) for t in trials} if cache_id is not None else {}
        if len(trials) == 1:
            outcomes[0] = self._accept_untimed(trials[0])
            return self._conclude(layer, trials, outcomes, enumeration)
        for trial in trials:
            known = self._cache.query(keys[trial.id]) if keys else None
            if known is not None:
                outcomes[trial.id] = (known.status, known.time_us, known.reason)
        missing = [trial for trial in trials if trial.id not in outcomes]
        if missing:
            self._check_miss_allowed(layer, missing, keys)
            outcomes.update(self._run_trials(layer, missing, keys))
        self._tell_unchecked(layer, outcomes)
        return self._conclude(layer, trials, outcomes, enumeration)

    def _accept_untimed(self, trial: Trial) -> tuple[str, float | None, str | None]:
        reason = trial.check_workspace(self.ask_workspace, self._options.workspace_bytes)
        return ("refused", None, reason) if reason else ("untimed", None, "the only way to run it")

    def _check_miss_allowed(self, layer: PluginLayer, missing: list[Trial], keys: dict[int, str]) -> None:
        if self._options.error_on_cache_miss:
            raise TimingCacheError(
                f"{len(missing)} timing(s) are not in the timing cache",
                where=f"layer '{layer.name}', {layer.handle.where}",
                got=missing[0].label,
                fix="build once without the flag and keep the cache"
                if keys
                else "set timing_cache_id in the plugin, then build once without the flag",
            )

    def _key(self, layer: PluginLayer, trial: Trial, cache_id: str | None) -> str:
        device, version = cache_identity()
        handle = layer.handle
        return make_key(
            device=device,
            provider_version=version,
            plugin=(handle.name, handle.version, handle.namespace),
            timing_cache_id=cache_id or "",
            io=[
                ((port.min, port.opt, port.max), layout.dtype.name, f"{layout.format.name}/{layout.scale:.9g}")
                for port, layout in zip(layer.ports, trial.combination, strict=True)
            ],
            tactic=trial.tactic,
        )

    def _run_trials(
        self, layer: PluginLayer, trials: list[Trial], keys: dict[int, str]
    ) -> dict[int, tuple[str, float | None, str | None]]:
        outcomes: dict[int, tuple[str, float | None, str | None]] = {}
        runnable = []
        for trial in trials:
            reason = trial.check_workspace(self.ask_workspace, self._options.workspace_bytes)
            if reason:
                outcomes[trial.id] = ("refused", None, reason)
            else:
                runnable.append(trial)
        outcomes.update(self._measure(runnable))
        self._compare(layer, [t for t in runnable if outcomes[t.id][0] == "timed"], outcomes)
        for trial in trials:
            status, time_us, reason = outcomes[trial.id]
            if keys:
                self._record(keys[trial.id], TimingValue(time_us=time_us, status=status, reason=reason))
        return outcomes

    def _measure(self, trials: list[Trial]) -> dict[int, tuple[str, float | None, str | None]]:
        candidates = [Candidate(id=t.id, prepare=t.prepare, run=t.run, label=t.label) for t in trials]
        self.num_timed += len(candidates)
        results = measure(candidates, timeout_s=self._options.timeout_s, worker=self.worker)
        labels = {trial.id: trial.label for trial in trials}
        for result in results:
            if result.status != "timed":
                where = f"layer '{trials[0].layer.name}', {labels[result.id]}"
                self._logger.log(Severity.WARNING, f"skipping tactic ({where}): {result.reason}")
        self._hung |= {result.id for result in results if result.status == "timeout"}
        return {r.id: (r.status, round_us(r.median_us), r.reason) for r in results}

    def _compare(
        self,
        layer: PluginLayer,
        trials: list[Trial],
        outcomes: dict[int, tuple[str, float | None, str | None]],
    ) -> None:
        """Keep only tactics that agree; without a majority the first is kept, and strict builds end."""
        if len(trials) < 2:
            return
        results = {}
        for trial in trials:
            try:
                results[trial.id] = self.worker.call(trial.compute, self._options.timeout_s)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a tactic raises, it is skipped
                outcomes[trial.id] = ("failed", None, f"{type(error).__name__}: {error} ({locate_error(error)})")
        verdict = judge(results)
        for wrong, reason in verdict.wrong.items():
            outcomes[wrong] = ("wrong", outcomes[wrong][1], reason)
        if verdict.disagreement:
            message = f"layer '{layer.name}': tactics disagree and there is no reference: {verdict.disagreement}"
            if self._options.strict:
                raise BuildError(message, fix="find the wrong tactic, or build without strict")
            self._logger.log(Severity.WARNING, message)
        if verdict.note:
            self._logger.log(Severity.INFO, f"layer '{layer.name}': tactics were compared in part: {verdict.note}")
        if verdict.unverified is not None:
            for number in results.keys() - verdict.wrong.keys():
                outcomes[number] = (*outcomes[number][:2], verdict.unverified)

    def _tell_unchecked(self, layer: PluginLayer, outcomes: dict[int, tuple[str, float | None, str | None]]) -> None:
        """Say that nothing was compared, as the results of tactics are not finite or empty; timings kept say so too."""
        reasons = [reason for status, _, reason in outcomes.values() if status == "timed" and reason]
        if not reasons:
            return
        message = f"layer '{layer.name}': tactics could not be checked against each other: {reasons[0]}"
        if self._options.strict:
            raise BuildError(message, fix="mend the layer if it should give numbers, or build without strict")
        self._logger.log(Severity.WARNING, message)

    def _conclude(
        self,
        layer: PluginLayer,
        trials: list[Trial],
        outcomes: dict[int, tuple[str, float | None, str | None]],
        enumeration: Enumeration,
    ) -> TunedLayer:
        tuned = TunedLayer()
        usable: dict[Combination, list[tuple[Trial, float]]] = {}
        for trial in trials:
            status, time_us, reason = outcomes[trial.id]
            tuned.table.append(_candidate_record(trial, status, time_us, reason))
            if status in ("timed", "untimed"):
                usable.setdefault(trial.combination, []).append((trial, time_us or 0.0))
        if not usable:
            raise _no_tactic(layer, tuned.table, enumeration)
        for combination, entries in usable.items():
            best = pick_lowest((trial.id, time_us) for trial, time_us in entries)
            trial, time_us = next(entry for entry in entries if entry[0].id == best)
            tuned.choices.append(Choice(combination=combination, tactic=trial.tactic, time_us=time_us))
        return tuned


def _respects_aliases(layer: PluginLayer, combination: Combination) -> bool:
    outputs = combination[layer.num_inputs :]
    return all(source < 0 or combination[source] == out for source, out in zip(layer.aliases, outputs, strict=True))


def _candidate_record(trial: Trial, status: str, time_us: float | None, reason: str | None) -> CandidateRecord:
    return CandidateRecord(
        formats=[str(layout) for layout in trial.combination],
        tactic=trial.tactic,
        time_us=time_us,
        status=status,
        reason=reason,
    )


def _no_combination(layer: PluginLayer, enumeration: Enumeration) -> NoFormatError:
    table = enumeration.table(layer.num_inputs)
    if layer.is_linear_only:
        table += "\n  (only LINEAR is proposed where the run alone tells a shape, and in bodies of loops and branches)"
    return NoFormatError(
        f"could not find any supported formats consistent with input/output data types\n{table}",
        where=f"layer '{layer.name}', {layer.handle.where}",
        fix="accept one of the refused rows in supports_format_combination, or cast the tensor before the plugin",
    )


def _no_tactic(layer: PluginLayer, table: list[CandidateRecord], enumeration: Enumeration) -> BuildError:
    rows = "\n".join(f"  {', '.join(c.formats)} tactic {c.tactic}: {c.status} ({c.reason})" for c in table)
    return BuildError(
        f"could not find any implementation: every tactic failed\n{rows}\n{enumeration.table(layer.num_inputs)}",
        where=f"layer '{layer.name}', {layer.handle.where}",
    )
