"""A run of the network in FP32: the ranges of its tensors, and results to compare with.

The network is built with every FP32 tensor as an output, for the host, and run over the batches that somebody brought
or over made-up inputs. Nothing is timed and nothing narrow is used.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import numpy as np
import onnx_ir as ir

from dovetail.build.calibrate.calibration import reference_config
from dovetail.build.calibrate.calibration_cache import Range
from dovetail.build.calibrate.range_stats import ChannelMeans, EntropyStatistic, ErrorStatistic, MinMaxStatistic
from dovetail.build.plan_records import profile_record
from dovetail.build.planner import reference_program
from dovetail.build.precision.ports import is_float
from dovetail.build.progress import Phases
from dovetail.build.request import BuildRequest
from dovetail.build.tune.inputs import draw_all_inputs
from dovetail.errors import BuildError, InputError, UsageError
from dovetail.network.plugins import entry_of
from dovetail.passes.clone import clone_model
from dovetail.plan.manifest import Manifest
from dovetail.plugin.interfaces import PREFERS_HOST
from dovetail.provider.defaults import default_providers
from dovetail.runtime.bind.arrays import as_input
from dovetail.runtime.bind.instance import ProgramInstance

__all__ = ["Sample", "Trial", "float_names", "make_reference_request", "run_batch", "run_trial"]

_MOST_SAMPLES: Final = 16
_MOST_SAMPLE_BYTES: Final = 64 << 20
_PHASE: Final = "Run in fp32"


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Inputs and what the FP32 network makes of them."""

    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]

    @property
    def size_bytes(self) -> int:
        """The memory that its arrays take."""
        return sum(np.asarray(value).nbytes for value in (*self.inputs.values(), *self.outputs.values()))


@dataclass(kw_only=True)
class Trial:
    """What was seen."""

    is_made_up: bool
    """Whether nobody brought inputs."""
    count: int = 0
    samples: list[Sample] = field(default_factory=list)
    seen: dict[str, MinMaxStatistic] = field(default_factory=dict)
    entropy: dict[str, EntropyStatistic] = field(default_factory=dict)
    errors: dict[str, ErrorStatistic] = field(default_factory=dict)
    channels: dict[str, ChannelMeans] = field(default_factory=dict)

    @property
    def ranges(self) -> dict[str, Range | None]:
        """The smallest and the largest value of every tensor."""
        return {name: statistic.range() for name, statistic in self.seen.items()}

    @property
    def means(self) -> dict[str, Any]:
        """The mean of each channel of tensors whose means are wanted; none where the inputs were made up."""
        return {} if self.is_made_up else {name: statistic.means for name, statistic in self.channels.items()}

    def calibrate(self, method: str) -> dict[str, Range | None]:
        """The ranges to quantize with, never beyond what was seen."""
        found = self.ranges
        if method == "error":
            found |= {name: statistic.range() for name, statistic in self.errors.items()}
        if method == "entropy":
            found |= {name: _within(statistic, found[name]) for name, statistic in self.entropy.items()}
        return found

    def observe(self, name: str, array: Any, method: str | None) -> None:
        """Take what a tensor held in one batch, for a method of calibration or for its bounds alone."""
        self.seen.setdefault(name, MinMaxStatistic()).observe(array)
        if method == "error":
            self.errors.setdefault(name, ErrorStatistic()).observe(array)
        if method == "entropy":
            self.entropy.setdefault(name, EntropyStatistic()).observe(array)

    def keep(self, sample: Sample) -> None:
        """Keep a sample while there is room."""
        used = sum(each.size_bytes for each in self.samples)
        if not self.samples or (len(self.samples) < _MOST_SAMPLES and used < _MOST_SAMPLE_BYTES):
            self.samples.append(sample)


def _within(statistic: EntropyStatistic, seen: Range | None) -> Range | None:
    found = statistic.range()
    return seen if found is None or seen is None else (max(found[0], seen[0]), min(found[1], seen[1]))


def float_names(graph: ir.Graph) -> list[str]:
    """The FP32 tensors that a run is given or computes, without those in bodies."""
    values = [*graph.inputs, *(value for node in graph for value in node.outputs)]
    wanted = [v for v in values if is_float(v) and ir.convenience.get_const_tensor(v) is None]
    return list(dict.fromkeys(value.name for value in wanted if value.name))


def run_trial(
    request: BuildRequest,
    phases: Phases,
    batches: Iterable[Mapping[str, Any]] | None,
    *,
    method: str | None = None,
    counted: Collection[str] = (),
    averaged: Collection[str] = (),
    drawn_from: Mapping[str, Range | None] | None = None,
) -> Trial:
    """Run the network in FP32.

    Args:
        request: The network, which is not changed.
        phases: Told of each batch.
        batches: The inputs; None to make some up at the shapes that the first profile is tuned for.
        method: How ranges to quantize with are found, where they are wanted.
        counted: The tensors that they are wanted of.
        averaged: The tensors that the means of channels are wanted of.
        drawn_from: Input -> the range that made-up numbers are drawn from, where another than -1 to 1 is known.
    """
    trial = Trial(is_made_up=batches is None)
    names = float_names(request.model.graph)
    outputs = [value.name or "" for value in request.model.graph.outputs]
    with reference_program(_make_observed(request, names)) as instance, phases.phase(_PHASE, steps=_count(batches)):
        for number, batch in enumerate(_batches(batches, instance.manifest, request, drawn_from or {})):
            arrays, results = run_batch(instance, batch)
            found = {**arrays, **results}
            for name in names:
                if name in found:
                    trial.observe(name, found[name], method if name in counted else None)
            for name in averaged:
                if name in found:
                    trial.channels.setdefault(name, ChannelMeans()).observe(found[name])
            trial.keep(Sample(inputs=arrays, outputs={name: results[name] for name in outputs}))
            trial.count = number + 1
            phases.report_step(_PHASE, number)
    if not trial.count:
        raise BuildError("there is no calibration batch, so no range can be found", where="calibration data")
    return trial


def _count(batches: Iterable[Mapping[str, Any]] | None) -> int:
    return len(batches) if isinstance(batches, Sequence) else 0


def _make_observed(request: BuildRequest, names: Sequence[str]) -> BuildRequest:
    model = clone_model(request.model)
    _show_values(model.graph, set(names))
    return make_reference_request(request, model)


def make_reference_request(request: BuildRequest, model: ir.Model) -> BuildRequest:
    """The request to build another form of a network for the host, to be run at once and not to be kept."""
    plain = copy.copy(request)
    plain.model = model
    plain.config = reference_config(request.config)
    plain.config.profiles, plain.config.strict, plain.config.tells_unset_dims = [], False, False
    plain.is_open = any(v.shape is None or not v.shape.is_static() for v in plain.model.graph.inputs)
    plain.is_reference = True
    plain.refittable, plain.order, plain.updates = frozenset(), (), {}
    plain.providers = _host_providers(request)
    return plain


def _host_providers(request: BuildRequest) -> Sequence[str]:
    """The host's, so that every value can be read; plugins for a device need that device."""
    entries = [entry_of(node) for node in request.model.graph.all_nodes()]
    wants = {entry.handle.preferred_memory for entry in entries if entry is not None}
    return default_providers() if wants <= {"", PREFERS_HOST} else request.providers


def _show_values(graph: ir.Graph, names: set[str]) -> None:
    """Have the values of these names given out too."""
    for node in graph:
        for value in node.outputs:
            if value.name in names and not value.is_graph_output():
                graph.outputs.append(value)


def _batches(
    batches: Iterable[Mapping[str, Any]] | None,
    manifest: Manifest,
    request: BuildRequest,
    drawn_from: Mapping[str, Range | None],
) -> Iterator[Mapping[str, Any]]:
    if batches is not None:
        yield from batches
        return
    records = [profile_record(profile) for profile in request.config.profiles[:1]]
    drawn = draw_all_inputs(msgspec.structs.replace(manifest, profiles=records))[0]
    yield {t.name: _stretch(array, drawn_from.get(t.name)) for t, array in zip(manifest.inputs, drawn, strict=True)}


def _stretch(array: Any, bounds: Range | None) -> Any:
    """Numbers from -1 to 1 over another range."""
    if bounds is None or array.dtype.kind != "f":
        return array
    return (bounds[0] + (array + 1.0) / 2.0 * (bounds[1] - bounds[0])).astype(array.dtype)


def run_batch(instance: ProgramInstance, batch: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The inputs by name as they were run, and the results by name."""
    manifest = instance.manifest
    if not isinstance(batch, Mapping):
        expected = "a mapping from input name to array"
        raise UsageError(
            "not a calibration batch", where="calibration data", expected=expected, got=type(batch).__name__
        )
    missing = [tensor.name for tensor in manifest.inputs if tensor.name not in batch]
    if missing:
        raise InputError(
            f"a calibration batch has no input '{missing[0]}'",
            where="calibration data",
            expected=f"arrays named {', '.join(tensor.name for tensor in manifest.inputs)}",
            got=", ".join(map(str, batch)) or "nothing",
        )
    arrays = [np.array(as_input(batch[tensor.name], tensor, np.dtype(tensor.dtype))) for tensor in manifest.inputs]
    run = instance.find(tuple([array.shape for array in arrays]), arrays)
    results = run.outputs.finish(run.run(arrays, run.outputs.make(arrays)))
    inputs = {tensor.name: array for tensor, array in zip(manifest.inputs, arrays, strict=True)}
    return inputs, {tensor.name: result for tensor, result in zip(manifest.outputs, results, strict=True)}
