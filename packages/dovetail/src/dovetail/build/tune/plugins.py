"""Tuning one plugin layer: every accepted combination and tactic is a candidate.

The order of calls on the plugin is the contract's: enumeration, timing cache ID, enumeration again, then for each
combination attach, configure and tactics, and for each tactic set_tactic, workspace, shapes and runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dovetail.allocators import HostAllocator, IGpuAllocator
from dovetail.build.plan_plugins import check_copy
from dovetail.build.tune.agree import Result
from dovetail.build.tune.candidates import Outcome, TimedCandidate, candidate_record, pick_best
from dovetail.build.tune.combinations import Combination, Enumeration, enumerate_combinations, layout_text
from dovetail.build.tune.keys import make_key
from dovetail.build.tune.plugin_run.checks import check_run
from dovetail.build.tune.session import identify
from dovetail.build.tune.trial import PluginLayer, PluginTrial, dynamic_descs, workspace_descs
from dovetail.build.tune.tuner import CandidateTuner
from dovetail.errors import BuildError
from dovetail.expr import sizes_or_unknown
from dovetail.loggers import ErrorRecorder, IErrorRecorder, Severity
from dovetail.plan.manifest import CandidateRecord
from dovetail.plugin.handle import PluginHandle
from dovetail.plugin.interfaces import IPluginResourceContext
from dovetail.provider.interfaces import Provider, ShapeRange

__all__ = ["Choice", "NoFormatError", "PluginTuner", "TunedLayer"]


class NoFormatError(BuildError):
    """A plugin accepted none of the types and formats that were proposed."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One usable way to run the layer: a combination with its best tactic."""

    combination: Combination
    tactic: int
    time_us: float
    is_checked: bool = False
    """Whether a run of it in this build was checked."""


@dataclass
class TunedLayer:
    """What is left to choose from, and the whole table."""

    choices: list[Choice] = field(default_factory=list)
    table: list[CandidateRecord] = field(default_factory=list)


class _TuningResources(IPluginResourceContext):
    """The resource context of the builder, for plugins in one memory."""

    def __init__(self, allocator: IGpuAllocator) -> None:
        self._allocator, self._recorder = allocator, ErrorRecorder()

    @property
    def gpu_allocator(self) -> IGpuAllocator:
        return self._allocator

    @property
    def error_recorder(self) -> IErrorRecorder:
        return self._recorder


class PluginTuner:
    """Proposes the formats and tactics of plugin layers, one layer after the other."""

    def __init__(self, tuner: CandidateTuner) -> None:
        self._tuner = tuner
        self._options = tuner.options
        self._logger = tuner.logger
        self._contexts: dict[str, _TuningResources] = {}

    def find_context(self, provider: Provider) -> IPluginResourceContext:
        """The resource context of plugins that run in a provider's memory."""
        name = provider.memory_name
        if name not in self._contexts:
            is_device = bool(name) and provider.is_here
            self._contexts[name] = _TuningResources(provider.allocator if is_device else HostAllocator())
        return self._contexts[name]

    def tune(self, layer: PluginLayer) -> TunedLayer:
        """Find every way to run the layer and how long each takes."""
        enumeration = self._enumerate(layer)
        self._report_exceptions(layer, enumeration)
        if not enumeration.accepted:
            raise _no_combination(layer, enumeration)
        cache_id = layer.handle.timing_cache_id
        again = self._enumerate(layer)
        if again.accepted != enumeration.accepted:
            self._logger.log(
                Severity.WARNING,
                f"{layer.handle.where}: supports_format_combination gave different answers to the same questions; "
                "the second set is used (rule: it must be pure)",
            )
        trials = self._make_trials(layer, again.accepted or enumeration.accepted)
        candidates = [self._make_candidate(trial, cache_id) for trial in trials]
        where = f"layer '{layer.name}', {layer.handle.where}"
        if layer.provider.is_here:
            outcomes = self._tuner.tune(where, candidates, self._tuner.find_lane(layer.provider))
        else:
            outcomes = self._tuner.choose_untimed(candidates)
        return _conclude(layer, trials, outcomes, enumeration)

    def _enumerate(self, layer: PluginLayer) -> Enumeration:
        return enumerate_combinations(layer.handle, layer.tensors, layer.proposals, layer.num_inputs)

    def ask_workspace(self, layer: PluginLayer, handle: PluginHandle, combination: Combination) -> int:
        """Return the workspace size in bytes.

        A size that the plugin cannot compute ends the build: `enqueue` would get a null workspace in its place.
        """
        return handle.get_workspace_size(*workspace_descs(layer, combination))

    def _report_exceptions(self, layer: PluginLayer, enumeration: Enumeration) -> None:
        """An exception is a refusal by the contract, but one that its author should hear of."""
        for (pos, layout), reason in enumeration.raised.items():
            self._logger.log(
                Severity.ERROR,
                f"layer '{layer.name}', {layer.handle.where}: supports_format_combination(pos={pos}) {reason}; "
                f"{layout_text(layout)} counts as refused",
            )

    # trials

    def _make_trials(self, layer: PluginLayer, combinations: Sequence[Combination]) -> list[PluginTrial]:
        trials: list[PluginTrial] = []
        lane = self._tuner.find_lane(layer.provider)
        for combination in combinations:
            if not _respects_aliases(layer, combination):
                continue
            attached = self.attach(layer, combination)
            tactics = attached.get_valid_tactics() or [0]
            if self._options.max_tactics > 0:
                tactics = tactics[: self._options.max_tactics]
            # Each tactic runs on an object of its own: one that hangs may still be running when the next is timed.
            handles = [attached, *(self.attach(layer, combination) for _ in tactics[1:])]
            for tactic, handle in zip(tactics, handles, strict=True):
                trials.append(PluginTrial(len(trials), layer, combination, tactic, handle, lane))
        if not trials:
            raise BuildError(
                "no combination gives aliased inputs and outputs the same layout",
                where=layer.handle.where,
                fix="accept equal type and format on both sides of an alias",
            )
        return trials

    def attach(self, layer: PluginLayer, combination: Combination) -> PluginHandle:
        """Return an attached object that is configured for a combination."""
        attached = layer.handle.attach_to_context(self.find_context(layer.provider))
        check_copy(layer.handle, attached, "attach_to_context")
        attached.configure(*dynamic_descs(layer, combination))
        return attached

    def _make_candidate(self, trial: PluginTrial, cache_id: str | None) -> TimedCandidate:
        return TimedCandidate(
            id=trial.id,
            label=trial.label,
            title=trial.title,
            prepare=trial.prepare,
            run=trial.run,
            key=None if cache_id is None else _make_key(trial, cache_id),
            compute=lambda: self._compute(trial),
            check=lambda: trial.check_workspace(self.ask_workspace, self._options.workspace_bytes),
            close=lambda: trial.close(self._logger),
        )

    def _compute(self, trial: PluginTrial) -> Result:
        """Run a trial over fresh inputs, check its writes, and return its outputs."""
        for text in check_run(trial, strict=self._options.strict):
            self._logger.log(Severity.WARNING, f"layer '{trial.layer.name}', {trial.handle.where}: {text}")
        return trial.read_result()


def _make_key(trial: PluginTrial, cache_id: str) -> str:
    layer, handle = trial.layer, trial.layer.handle
    device, version = identify(layer.provider)
    return make_key(
        device=device,
        provider_version=version,
        plugin=(handle.name, handle.version, handle.namespace),
        timing_cache_id=cache_id,
        io=[
            (_bounds(tensor.shapes), layout.data_type.name, f"{layout.format}/{layout.scale:.9g}")
            for tensor, layout in zip(layer.tensors, trial.combination, strict=True)
        ],
        tactic=trial.tactic,
    )


def _bounds(shapes: ShapeRange | None) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Min, opt and max as a key has them: -1 for what has no bound."""
    if shapes is None:
        return ((), (), ())
    return (shapes.min, shapes.opt, sizes_or_unknown(shapes.max))


def _conclude(
    layer: PluginLayer, trials: Sequence[PluginTrial], outcomes: Mapping[int, Outcome], enumeration: Enumeration
) -> TunedLayer:
    """The best tactic of each combination, and the table."""
    tuned = TunedLayer(table=[_candidate_record(trial, outcomes[trial.id]) for trial in trials])
    for combination in dict.fromkeys(trial.combination for trial in trials):
        best = pick_best((trial.id, outcomes[trial.id]) for trial in trials if trial.combination == combination)
        if best is not None:
            time_us = outcomes[best].time_us or 0.0
            trial = trials[best]
            tuned.choices.append(
                Choice(combination=combination, tactic=trial.tactic, time_us=time_us, is_checked=trial.is_checked)
            )
    if not tuned.choices:
        raise _no_tactic(layer, tuned.table, enumeration)
    return tuned


def _respects_aliases(layer: PluginLayer, combination: Combination) -> bool:
    outputs = combination[layer.num_inputs :]
    return all(source < 0 or combination[source] == out for source, out in zip(layer.aliases, outputs, strict=True))


def _candidate_record(trial: PluginTrial, outcome: Outcome) -> CandidateRecord:
    formats = [layout_text(layout) for layout in trial.combination]
    return candidate_record(outcome, name=trial.tactic_name, tactic=trial.tactic, formats=formats)


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
