"""Calibration: run the network in FP32 over sample batches and find the INT8 range of every float tensor.

It exists only for weakly typed networks built with INT8 allowed. The FP32 network is built like any other, except that
plugins are offered nothing but FP32 row by row and that nothing is timed. A range set on a tensor wins over a
calibrated one, and so does the scale of a Q/DQ node beside it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import numpy as np
import onnx_ir as ir

from dovetail.build.calibrate.calibration_cache import Range, cache_mismatch, encode_cache
from dovetail.build.calibrate.calibrators import IInt8Calibrator, algorithm_of, make_statistic
from dovetail.build.calibrate.range_stats import MinMaxStatistic, RangeStatistic
from dovetail.build.calibrate.scales import find_scales, graph_values
from dovetail.build.config import BuilderConfig, BuilderFlag
from dovetail.build.planner import reference_program
from dovetail.build.progress import Phases
from dovetail.build.request import BuildRequest
from dovetail.build.tune.plugins import NoFormatError
from dovetail.errors import BuildError, DovetailError, UsageError
from dovetail.loggers import Severity
from dovetail.network.plugins import entry_of
from dovetail.plan.manifest import Manifest, TensorRecord, ValueRecord
from dovetail.plugin.handle import locate_error
from dovetail.runtime.bind.arrays import array_at, as_input
from dovetail.runtime.bind.instance import ProgramInstance
from dovetail.runtime.bind.run import Visit
from dovetail.runtime.observe import observe_with
from dovetail.runtime.steps.base import Array

__all__ = ["collect_ranges", "reference_config"]

T = TypeVar("T")

_NARROW: Final = (BuilderFlag.FP16, BuilderFlag.BF16, BuilderFlag.INT8, BuilderFlag.FP8)


def collect_ranges(request: BuildRequest, phases: Phases) -> Mapping[str, Range]:
    """The ranges to build with: those set on tensors, and the calibrator's for all other tensors."""
    calibrator = request.config.int8_calibrator
    allows_int8 = request.config.get_flag(BuilderFlag.INT8) and not request.strongly_typed
    if calibrator is None:
        if allows_int8 and not request.ranges and not find_scales(request.model.graph, {}):
            request.logger.log(
                Severity.WARNING,
                "INT8 is allowed, but no tensor has a scale, so it is never proposed: "
                "set dynamic ranges, add Q/DQ layers, or set config.int8_calibrator",
            )
        return request.ranges
    if request.strongly_typed:
        raise UsageError(
            "a calibrator cannot be used with a strongly typed network: its types are fixed",
            where="config.int8_calibrator",
            fix="put Q/DQ layers around the INT8 layers, or create the network with strongly_typed=False",
        )
    if not allows_int8:
        request.logger.log(Severity.WARNING, "the calibrator is not used: BuilderFlag.INT8 is not set")
        return request.ranges
    with phases.phase("Calibrate", steps=2) as phase:
        calibration = _Calibration(request, calibrator, phases)
        calibrated = calibration.find()
        phase.step()
        ranges = calibration.merge(calibrated)
        phase.step()
    return ranges


class _Calibration:
    """One calibrator over one network."""

    def __init__(self, request: BuildRequest, calibrator: IInt8Calibrator, phases: Phases) -> None:
        self._request, self._phases, self._calibrator = request, phases, calibrator
        self._where = f"calibrator {type(calibrator).__name__}"
        self._algorithm = algorithm_of(calibrator)
        self._names = _names_to_calibrate(request.model.graph)

    def find(self) -> dict[str, Range | None]:
        """Every tensor's range, from the cache when it fits, else from the batches."""
        cached = self._read_cache()
        if cached is not None:
            return cached
        statistics = self._run()
        ranges = {name: statistics[name].range() if name in statistics else None for name in self._names}
        text = encode_cache(self._algorithm.name, ranges)
        self._ask("write_calibration_cache", lambda: self._calibrator.write_calibration_cache(memoryview(text)))
        return ranges

    def _read_cache(self) -> dict[str, Range | None] | None:
        text = self._ask("read_calibration_cache", self._calibrator.read_calibration_cache)
        if not text:
            return None
        mismatch, ranges = cache_mismatch(self._algorithm.name, self._names, bytes(text))
        if mismatch is not None:
            self._request.logger.log(
                Severity.WARNING, f"the calibration cache is not used, the network is calibrated again: {mismatch}"
            )
            return None
        return ranges

    def merge(self, calibrated: Mapping[str, Range | None]) -> dict[str, Range]:
        """Calibrated ranges, under what the network itself says; constants speak for themselves."""
        graph = self._request.model.graph
        told = {value.name for value in find_scales(graph, self._request.ranges)}
        ranges = {name: found for name, found in calibrated.items() if found is not None and name not in told}
        ranges.update({name: found for name, found in _constant_ranges(graph).items() if name not in told})
        ranges.update(self._request.ranges)
        bare = sorted(name for name in _plugin_tensors(graph) if name not in ranges and name not in told)
        if bare:
            self._request.logger.log(
                Severity.WARNING,
                f"calibration found no range for {', '.join(bare)}: the tensors were zero or not computed, "
                "and stay in floating point",
            )
        return ranges

    # batches

    def _run(self) -> dict[str, RangeStatistic]:
        statistics: dict[str, RangeStatistic] = {}
        names = set(self._names)

        def observe(value: ValueRecord, array: Any) -> None:
            if value.name in names:
                statistics.setdefault(value.name, make_statistic(self._algorithm)).observe(array)

        try:
            with reference_program(_reference_request(self._request)) as instance:
                self._run_batches(instance, observe_with(observe))
        except NoFormatError as error:
            raise BuildError(
                f"calibration runs the network in FP32, which this plugin does not take\n{error.what}",
                where=error.where,
                fix="accept FP32 LINEAR for every float tensor in supports_format_combination, or set a dynamic range "
                "on each of the plugin's tensors and build without a calibrator",
            ) from error
        return statistics

    def _run_batches(self, instance: ProgramInstance, visit: Visit) -> None:
        count = 0
        name = "Run calibration batches"
        with self._phases.phase(name, steps=getattr(self._calibrator, "num_batches", 0)):
            while (batch := self._next_batch(instance.manifest)) is not None:
                run = instance.find(tuple([array.shape for array in batch]), batch)
                run.run(batch, run.outputs.make(batch), visit)
                self._phases.report_step(name, count)
                count += 1
        if not count:
            raise BuildError(
                "the calibrator gave no batch, so no range can be found",
                where=self._where,
                fix="return addresses or arrays from get_batch, or a cache from read_calibration_cache",
            )

    def _next_batch(self, manifest: Manifest) -> list[Array] | None:
        names = [tensor.name for tensor in manifest.inputs]
        batch = self._ask("get_batch", lambda: self._calibrator.get_batch(names))
        if batch is None or len(batch) == 0:
            return None
        if len(batch) != len(names):
            raise UsageError(
                "get_batch gave the wrong number of entries",
                where=self._where,
                expected=f"{len(names)} ({', '.join(names)})",
                got=len(batch),
            )
        return [_as_batch(entry, tensor, manifest) for entry, tensor in zip(batch, manifest.inputs, strict=True)]

    def _ask(self, method: str, action: Callable[[], T]) -> T:
        try:
            return action()
        except DovetailError:
            raise
        except Exception as error:
            raise UsageError(
                f"{method} raised {type(error).__name__}: {error}", where=f"{self._where}, {locate_error(error)}"
            ) from error


def _as_batch(entry: Any, tensor: TensorRecord, manifest: Manifest) -> Array:
    """A copy of one input of a batch, because a plugin may write to inputs it aliases."""
    dtype = np.dtype(tensor.dtype)
    is_address = isinstance(entry, int | np.integer) or (hasattr(entry, "__int__") and not hasattr(entry, "shape"))
    if is_address:
        return np.array(array_at(int(entry), _batch_shape(tensor, manifest), dtype))
    return np.array(as_input(entry, tensor, dtype))


def _batch_shape(tensor: TensorRecord, manifest: Manifest) -> Sequence[int]:
    """The shape of what lies at an address: the input's own, or the one the profile is tuned for."""
    if tensor.fixed_shape is not None:
        return tensor.fixed_shape
    bounds = manifest.profiles[0].shapes.get(tensor.name) if manifest.profiles else None
    if bounds is None:
        raise UsageError(
            "the shape of the memory at an address is not known",
            where=f"calibration batch, input '{tensor.name}'",
            fix="return arrays from get_batch, or add an optimization profile",
        )
    return bounds[1]


def _reference_request(request: BuildRequest) -> BuildRequest:
    plain = copy.copy(request)
    plain.config = reference_config(request.config)
    plain.is_reference = True
    plain.providers = ("cpu",)  # every value is seen there; a compiled partition shows only its border
    return plain


def reference_config(config: BuilderConfig) -> BuilderConfig:
    """The settings of a build in FP32 that nobody keeps: nothing narrow, nothing timed, nothing for one machine."""
    plain = copy.copy(config)
    for flag in (*_NARROW, BuilderFlag.ERROR_ON_TIMING_CACHE_MISS, BuilderFlag.STRIP_PLAN):
        plain.clear_flag(flag)
    plain.set_flag(BuilderFlag.DISABLE_TIMING_CACHE)
    plain.max_num_tactics = 1
    plain.precision, plain.rivals, plain.candidate_bytes = None, False, 0
    plain.layer_providers, plain.io_memory, plain.aliases = {}, {}, {}
    profile = config.get_calibration_profile()
    plain.profiles = config.profiles[:1] if profile is None else [profile]
    return plain


def _names_to_calibrate(graph: ir.Graph) -> list[str]:
    """Every FP32 tensor that a run computes or is given."""
    names = (
        value.name
        for value in graph_values(graph)
        if value.name and value.dtype == ir.DataType.FLOAT and ir.convenience.get_const_tensor(value) is None
    )
    return list(dict.fromkeys(names))


def _constant_ranges(graph: ir.Graph) -> dict[str, Range]:
    """Ranges of the constants that plugins take; they are known without a run."""
    ranges = {}
    for value in _plugin_tensors(graph).values():
        tensor = ir.convenience.get_const_tensor(value)
        if tensor is not None:
            statistic = MinMaxStatistic()
            statistic.observe(np.asarray(tensor.numpy()))
            found = statistic.range()
            if found is not None:
                ranges[value.name or ""] = found
    return ranges


def _plugin_tensors(graph: ir.Graph) -> dict[str, ir.Value]:
    """The FP32 tensors that plugins read and write, by name."""
    tensors = {}
    for node in graph.all_nodes():
        entry = entry_of(node)
        for value in [] if entry is None else [*node.inputs[: entry.num_inputs], *node.outputs]:
            if value is not None and value.name and value.dtype == ir.DataType.FLOAT:
                tensors[value.name] = value
    return tensors
