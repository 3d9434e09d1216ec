"""Partitions that a host device compiles: each is stored as a plan of its own, for the kernels of ``cpu``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dovetail.errors import ProviderError
from dovetail.loggers import Logger, Severity
from dovetail.provider.devices import Stream
from dovetail.provider.interfaces import (
    BindContext,
    BoundPartition,
    BuildContext,
    BuildReport,
    BuiltPartition,
    LoadedPartition,
    NodeReport,
    ShapeRange,
    StoredPartition,
)
from dovetail.testing.host_arrays import POISON, HostDeviceArray
from dovetail.testing.host_building import check_code, find_packed, make_code, pack
from dovetail.testing.host_ways import carry_ways, check_way, choose_way, make_way_code

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail.plan.manifest import StepRecord
    from dovetail.runtime.engine import Engine
    from dovetail.testing.host_device import HostDevice
    from dovetail.testing.host_options import HostDeviceOptions

__all__ = ["HostDevicePartition", "compile_partition", "load_partition"]

_VERSION: Final = "2"
_PACKED: Final = "packed "
"""How names of packed weights begin."""


def compile_partition(device: HostDevice, model: ir.Model, context: BuildContext) -> BuiltPartition:
    """A plan for ``cpu`` without its weights as the payload; these are beside it, some of them packed."""
    from dovetail.api import compile as compile_model
    from dovetail.build.config import BuilderConfig, BuilderFlag

    packed = find_packed(model) if device.options.packs else set()
    weights = {name: value.const_value.numpy() for name, value in _arrays(model)}
    config = BuilderConfig()
    if weights:
        config.set_flag(BuilderFlag.STRIP_PLAN)
    shapes = _profile(context.shapes) if device.builds_per_profile and not context.is_open else None
    engine = compile_model(model, providers=["cpu"], config=config, shapes=shapes, logger=Logger(Severity.ERROR))
    name, ways = model.graph.name or "", device.options.ways
    way = choose_way(device, context.tuner, name, ways) if ways else ""
    refit = engine.manifest.refit
    names = [] if refit is None else list(refit.weights)
    return BuiltPartition(
        payload=bytes(engine.serialize()),
        version=_VERSION,
        weights=dict(_store(name, weights[name], is_packed=name in packed) for name in names),
        code={**make_code(device, name), **(make_way_code(device, name, way) if ways else {})},
        workspace_bytes=device.options.workspace_bytes,
        report=BuildReport(nodes=[_describe(step) for step in engine.manifest.programs[0].steps]),
        candidates=carry_ways(device, name, way, context) if ways else None,
    )


def _store(name: str, array: Any, *, is_packed: bool) -> tuple[str, Any]:
    return (f"{_PACKED}{name}", pack(array, name)) if is_packed else (name, array)


def _arrays(model: ir.Model) -> list[tuple[str, Any]]:
    """Weights that a plan can be stripped of."""
    whole = ("INT32", "INT64", "BOOL", "STRING")
    pairs = model.graph.initializers.items()
    return [(n, v) for n, v in pairs if v.const_value is not None and v.dtype is not None and v.dtype.name not in whole]


def _profile(shapes: Mapping[str, ShapeRange]) -> dict[str, Any] | None:
    fixed = {name: (s.min, s.opt, tuple(n or 0 for n in s.max)) for name, s in shapes.items()}
    return fixed or None


def _describe(step: StepRecord) -> NodeReport:
    return NodeReport(name=step.name, op=step.op, layers=(step.name,), tactic="host")


def load_partition(device: HostDevice, stored: StoredPartition) -> HostDevicePartition:
    """The plan as an engine with its weights; only this version's are taken."""
    from dovetail.runtime.loading import Runtime

    if stored.version != _VERSION:
        raise ProviderError(
            "the partition was compiled by another version",
            where=f"provider '{device.name}', step '{stored.name}'",
            expected=_VERSION,
            got=stored.version,
            fix="build the plan again",
        )
    check_code(device, stored.name, check_way(device, stored.name, stored.code))
    partition = HostDevicePartition(device, Runtime().deserialize_cuda_engine(bytes(stored.payload)), stored)
    partition.set_weights(stored.weights)
    partition.require_weights()
    return partition


class HostDevicePartition(LoadedPartition):
    """A partition that runs over the device's memory, in the order of a stream."""

    def __init__(self, device: HostDevice, engine: Engine, stored: StoredPartition) -> None:
        self._device = device
        self._engine = engine
        self._name = stored.name
        self._outputs = list(stored.outputs)

    def refit(self, name: str, array: Any) -> None:
        """Use a new array for a weight, from the next run on."""
        self._device.check("refit")
        self.set_weights({name: array})

    def set_weights(self, weights: Mapping[str, Any]) -> None:
        """Give weights to the engine, as it has them."""
        from dovetail.runtime.refit import Refitter

        if not weights:
            return
        refitter = Refitter(self._engine)
        refitter.weights_validation = False
        for name, array in weights.items():
            is_packed = name.startswith(_PACKED)
            refitter.set_named_weights(name.removeprefix(_PACKED), array.T if is_packed else array)
        refitter.refit_cuda_engine()

    def require_weights(self) -> None:
        """Check that the engine has all of its weights."""
        from dovetail.runtime.refit import Refitter

        missing = Refitter(self._engine).get_missing_weights() if self._engine.refittable else []
        if missing:
            raise ProviderError(
                f"weight(s) of the partition did not come: {', '.join(missing)}",
                where=f"provider '{self._device.name}', step '{self._name}'",
                fix="build the plan again",
            )

    def bind(self, context: BindContext) -> BoundPartition:
        """The partition on a stream."""
        self._device.check("bind_partition")
        return _BoundHostPartition(
            self, context, self._device.open_workspace(context, self._name), self._device.options
        )

    def workspace_bytes(self, input_shapes: Sequence[tuple[int, ...] | None]) -> int:
        """What its options say."""
        self._device.check("workspace_bytes")
        return self._device.options.workspace_bytes

    def run(
        self, inputs: Sequence[Any], outputs: list[Any], stream: Stream | None, workspace: HostDeviceArray | None
    ) -> None:
        """Put a run on a stream; results without memory are made at once, which needs a wait."""
        arrays = [self._device.require_own(array, self._name) for array in inputs]
        self._device.statistics.launches += 1
        if any(output is None for output in outputs):
            self._make(arrays, outputs, stream)
            return
        targets = list(outputs)
        self._device.submit(stream, "Partition", lambda: self._write(arrays, targets, workspace))

    def _make(self, arrays: Sequence[HostDeviceArray], outputs: list[Any], stream: Stream | None) -> None:
        if stream is not None:
            stream.synchronize()
        made = [self._device.to_device(np.asarray(result)) for result in self._compute(arrays)]
        for index, result in enumerate(made):
            if outputs[index] is None:
                outputs[index] = result
            else:
                self._device.copy(result, outputs[index], stream)

    def _compute(self, arrays: Sequence[HostDeviceArray]) -> list[Any]:
        results = self._engine(*(array.read() for array in arrays))
        return [results[name] for name in self._outputs] if isinstance(results, dict) else [results]

    def _write(
        self, arrays: Sequence[HostDeviceArray], targets: Sequence[HostDeviceArray], workspace: HostDeviceArray | None
    ) -> None:
        if workspace is not None:  # whatever else lies there is lost before it is read
            workspace.view()[...] = POISON
        for target, result in zip(targets, self._compute(arrays), strict=True):
            target.write(result)

    def close(self) -> None:
        """Let go of the engine."""
        self._engine.close()


class _BoundHostPartition(BoundPartition):
    """Such a partition for one bound run."""

    def __init__(
        self,
        partition: HostDevicePartition,
        context: BindContext,
        workspace: HostDeviceArray | None,
        options: HostDeviceOptions,
    ) -> None:
        self._partition = partition
        self._stream = context.stream
        self._workspace = workspace
        self._lanes = [lane for lane in map(context.find_lane, range(options.num_lanes)) if lane is not None]
        self._num_runs = 0
        self.is_capturable = self._stream is not None and not self._lanes

    def run(self, inputs: Sequence[Any], outputs: list[Any]) -> None:
        if self._stream is None or not self._lanes:
            self._partition.run(inputs, outputs, self._stream, self._workspace)
            return
        lane = self._lanes[self._num_runs % len(self._lanes)]
        self._num_runs += 1
        lane.wait(self._stream.record())
        self._partition.run(inputs, outputs, lane, self._workspace)
        self._stream.wait(lane.record())
