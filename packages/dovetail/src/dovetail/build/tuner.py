"""Tuning one plugin layer: every accepted combination and tactic, timed, checked against each other, and cached.

The order of calls on the plugin is the contract's: enumeration, timing cache ID, enumeration again, then for each
combination attach, configure and tactics, and for each tactic set_tactic, workspace, shapes and runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from dovetail._version import __version__
from dovetail.allocators import HostAllocator, IGpuAllocator
from dovetail.build.agree import Output, Result, judge
from dovetail.build.enumerate import Combination, Enumeration, Layout, Port, enumerate_combinations
from dovetail.build.measure import Candidate, measure, pick_lowest
from dovetail.build.timing_cache import TimingCache, TimingValue, make_key
from dovetail.build.worker import TimingWorker
from dovetail.errors import BuildError, PluginError, TimingCacheError
from dovetail.formats import pack, pack_nibbles, packed_shape, size_bytes, unpack, unpack_nibbles
from dovetail.loggers import ErrorRecorder, IErrorRecorder, ILogger, Severity
from dovetail.plan.manifest import CandidateRecord
from dovetail.plugin.arrays import address_of
from dovetail.plugin.handle import PluginHandle, locate_error
from dovetail.plugin.interfaces import IPluginResourceContext
from dovetail.provider.arena import aligned_empty
from dovetail.provider.loader import get_provider
from dovetail.quantize import convert_type
from dovetail.types import DataType, Dims, PluginTensorDesc, TensorFormat

__all__ = [
    "Choice",
    "NoFormatError",
    "PluginLayer",
    "PluginTuner",
    "TunedLayer",
    "TunerOptions",
    "cache_identity",
    "round_us",
]

_SEED: Final = 20240607


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
class PluginLayer:
    """One plugin layer in one profile, as the tuner sees it."""

    name: str
    handle: PluginHandle
    ports: tuple[Port, ...]
    num_inputs: int
    data_dependent: tuple[tuple[int, ...], ...]
    """For each output the axes whose size the plugin tells."""
    aliases: tuple[int, ...]
    """For each output the input it shares memory with, or -1."""

    @property
    def is_bounded(self) -> bool:
        """Whether every dimension has a largest value."""
        return all(n >= 0 for port in self.ports for n in port.max)


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
    was_timed: bool = False


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
            return handle.get_workspace_size(*_workspace_descs(layer, combination))
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

    def _make_trials(self, layer: PluginLayer, combinations: Sequence[Combination]) -> list[_Trial]:
        trials: list[_Trial] = []
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
                trials.append(_Trial(len(trials), layer, combination, tactic, handle))
        if not trials:
            raise BuildError(
                "no combination gives aliased inputs and outputs the same layout",
                where=layer.handle.where,
                fix="accept equal type and format on both sides of an alias",
            )
        return trials

    def _attach(self, layer: PluginLayer, combination: Combination) -> PluginHandle:
        attached = layer.handle.attach_to_context(self.context)
        attached.configure(*_dynamic_descs(layer, combination))
        return attached

    def _time(
        self, layer: PluginLayer, trials: list[_Trial], cache_id: str | None, enumeration: Enumeration
    ) -> TunedLayer:
        outcomes: dict[int, tuple[str, float | None, str | None]] = {}
        keys = {t.id: self._key(layer, t, cache_id) for t in trials} if cache_id is not None else {}
        if len(trials) == 1:
            outcomes[0] = self._accept_untimed(trials[0])
            return self._conclude(layer, trials, outcomes, enumeration, was_timed=False)
        for trial in trials:
            known = self._cache.query(keys[trial.id]) if keys else None
            if known is not None:
                outcomes[trial.id] = (known.status, known.time_us, known.reason)
        missing = [trial for trial in trials if trial.id not in outcomes]
        if missing:
            self._check_miss_allowed(layer, missing, keys)
            outcomes.update(self._run_trials(layer, missing, keys))
        return self._conclude(layer, trials, outcomes, enumeration, was_timed=bool(missing))

    def _accept_untimed(self, trial: _Trial) -> tuple[str, float | None, str | None]:
        reason = trial.check_workspace(self.ask_workspace, self._options.workspace_bytes)
        return ("refused", None, reason) if reason else ("untimed", None, "the only way to run it")

    def _check_miss_allowed(self, layer: PluginLayer, missing: list[_Trial], keys: dict[int, str]) -> None:
        if self._options.error_on_cache_miss:
            raise TimingCacheError(
                f"{len(missing)} timing(s) are not in the timing cache",
                where=f"layer '{layer.name}', {layer.handle.where}",
                got=missing[0].label,
                fix="build once without the flag and keep the cache"
                if keys
                else "set timing_cache_id in the plugin, then build once without the flag",
            )

    def _key(self, layer: PluginLayer, trial: _Trial, cache_id: str | None) -> str:
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
        self, layer: PluginLayer, trials: list[_Trial], keys: dict[int, str]
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

    def _measure(self, trials: list[_Trial]) -> dict[int, tuple[str, float | None, str | None]]:
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
        trials: list[_Trial],
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

    def _conclude(
        self,
        layer: PluginLayer,
        trials: list[_Trial],
        outcomes: dict[int, tuple[str, float | None, str | None]],
        enumeration: Enumeration,
        *,
        was_timed: bool,
    ) -> TunedLayer:
        tuned = TunedLayer(was_timed=was_timed)
        usable: dict[Combination, list[tuple[_Trial, float]]] = {}
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


class _Trial:
    """One combination with one tactic, with memory to run it at the shapes the profile is tuned for."""

    def __init__(
        self, number: int, layer: PluginLayer, combination: Combination, tactic: int, handle: PluginHandle
    ) -> None:
        self.id, self.layer, self.combination, self.tactic, self.handle = number, layer, combination, tactic, handle
        self.label = f"{', '.join(map(str, combination))} tactic {tactic}"
        self._arrays: list[Any] | None = None
        self._workspace_bytes = 0
        self._workspace = np.empty(0, np.uint8)
        self._arguments: tuple[Any, ...] = ()

    def check_workspace(
        self, ask: Callable[[PluginLayer, PluginHandle, Combination], int], limit_bytes: int
    ) -> str | None:
        """Ask for the workspace with the tactic set; a reason when it is over the limit."""
        self.handle.set_tactic(self.tactic)
        self._workspace_bytes = ask(self.layer, self.handle, self.combination)
        if self._workspace_bytes > limit_bytes:
            return f"needs {self._workspace_bytes} bytes of workspace, the limit is {limit_bytes}"
        return None

    def prepare(self) -> None:
        """Everything before a burst of runs that is not to be timed: nobody else uses the object, so once is enough."""
        if self._arrays is None:
            self._allocate()
            self.handle.on_shape_change(self._arguments[0], self._arguments[1])

    def run(self) -> None:
        """One enqueue."""
        self.handle.runtime.enqueue(*self._arguments)

    def compute(self) -> Result:
        """One run from fresh inputs; the outputs as plain float64 arrays for comparison."""
        self._arrays = None
        self.prepare()
        self.run()
        return self._outputs()

    def _allocate(self) -> None:
        layer, count = self.layer, self.layer.num_inputs
        inputs = [_random_input(i, port, lay) for i, (port, lay) in enumerate(self._pairs()[:count])]
        outputs = []
        for index, (port, layout) in enumerate(self._pairs()[count:]):
            source = layer.aliases[index]
            outputs.append(inputs[source] if source >= 0 else _output_memory(port, layout))
        self._arrays = [*inputs, *outputs]
        self._workspace = aligned_empty(self._workspace_bytes)
        address = address_of(self._workspace) if self._workspace_bytes else 0
        pointers = [address_of(array) for array in self._arrays]
        self._arguments = (*self._descs(), pointers[:count], pointers[count:], address, 0)

    def _pairs(self) -> list[tuple[Port, Layout]]:
        return list(zip(self.layer.ports, self.combination, strict=True))

    def _descs(self) -> tuple[list[PluginTensorDesc], list[PluginTensorDesc]]:
        count = self.layer.num_inputs
        descs = []
        for position, (port, layout) in enumerate(self._pairs()):
            dims = list(port.opt)
            if position >= count:
                for axis in self.layer.data_dependent[position - count]:
                    dims[axis] = -1
            descs.append(PluginTensorDesc(Dims(dims), layout.dtype, layout.format, layout.scale))
        return descs[:count], descs[count:]

    def _outputs(self) -> Result:
        assert self._arrays is not None  # noqa: S101 - allocated by compute
        count, results = self.layer.num_inputs, []
        for index, (port, layout) in enumerate(self._pairs()[count:]):
            if self.layer.data_dependent[index]:
                continue  # how much of it is valid differs legitimately in order; its size tensor is compared
            memory = self._arrays[count + index]
            if layout.dtype.bits < 8:
                memory = unpack_nibbles(memory, layout.dtype.numpy, math.prod(port.opt)).reshape(port.opt)
            array = unpack(memory, layout.format, port.opt).astype(np.float64)
            results.append(Output(layout.dtype, array * layout.scale if layout.scale > 0 else array, layout.scale))
        return Result(tuple(results), tuple(layout.dtype for layout in self.combination[:count]))


def _random_input(index: int, port: Port, layout: Layout) -> Any:
    rng = np.random.default_rng(_SEED + index)
    if layout.dtype.is_float or layout.scale > 0:
        values = convert_type(_shared_numbers(rng, port), layout.dtype.numpy, target_scale=layout.scale)
    else:
        # Integers may be indices: zero and one are in range of nearly everything.
        values = rng.integers(0, 2, port.opt).astype(layout.dtype.numpy)
    if layout.dtype.bits < 8:
        return pack_nibbles(values)
    return pack(values, layout.format) if layout.format is not TensorFormat.LINEAR else np.ascontiguousarray(values)


def _shared_numbers(rng: np.random.Generator, port: Port) -> Any:
    """Numbers that every type proposed for the port holds, so that no candidate starts from others; see ``agree``."""
    types = {layout.dtype for layout in port.layouts}
    scale = max((layout.scale for layout in port.layouts if layout.dtype is DataType.INT8), default=-1.0)
    if scale > 0:
        steps = 127 if DataType.FP8 not in types else max(1, min(127, int(448 / scale)))
        return rng.integers(-steps, steps + 1, port.opt).astype(np.float32) * np.float32(scale)
    numbers = rng.uniform(-1.0, 1.0, port.opt).astype(np.float32)
    for dtype in (DataType.FP8, DataType.BF16, DataType.HALF):
        if dtype in types:
            numbers = numbers.astype(dtype.numpy).astype(np.float32)
    return numbers


def _output_memory(port: Port, layout: Layout) -> Any:
    shape = port.opt if port.room is None else port.room
    if layout.dtype.bits < 8:
        return np.zeros(size_bytes(shape, layout.dtype, layout.format), np.uint8)
    return np.zeros(packed_shape(shape, layout.format), layout.dtype.numpy)


def _dynamic_descs(layer: PluginLayer, combination: Combination) -> tuple[list[Any], list[Any]]:
    descs = [port.describe(layout) for port, layout in zip(layer.ports, combination, strict=True)]
    return descs[: layer.num_inputs], descs[layer.num_inputs :]


def _workspace_descs(layer: PluginLayer, combination: Combination) -> tuple[list[Any], list[Any]]:
    """What the workspace is asked for: the whole profile, or the tuned shape alone where there is no bound."""
    if layer.is_bounded:
        return _dynamic_descs(layer, combination)
    descs = [port.tuned().describe(layout) for port, layout in zip(layer.ports, combination, strict=True)]
    return descs[: layer.num_inputs], descs[layer.num_inputs :]


def _respects_aliases(layer: PluginLayer, combination: Combination) -> bool:
    outputs = combination[layer.num_inputs :]
    return all(source < 0 or combination[source] == out for source, out in zip(layer.aliases, outputs, strict=True))


def _candidate_record(trial: _Trial, status: str, time_us: float | None, reason: str | None) -> CandidateRecord:
    return CandidateRecord(
        formats=[str(layout) for layout in trial.combination],
        tactic=trial.tactic,
        time_us=time_us,
        status=status,
        reason=reason,
    )


def _no_combination(layer: PluginLayer, enumeration: Enumeration) -> NoFormatError:
    table = enumeration.table(layer.num_inputs)
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
