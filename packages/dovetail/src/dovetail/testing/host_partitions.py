"""Partitions that a host device compiles: each is stored as a plan of its own, for the kernels of ``cpu``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.errors import ProviderError
from dovetail.provider.devices import Stream
from dovetail.provider.interfaces import BindContext, BoundPartition, BuiltPartition, LoadedPartition, StoredPartition
from dovetail.testing.host_arrays import POISON, HostDeviceArray

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail.runtime.engine import Engine
    from dovetail.testing.host_device import HostDevice

__all__ = ["HostDevicePartition", "compile_partition", "load_partition"]

_VERSION = "1"


def compile_partition(model: ir.Model, workspace_bytes: int = 0) -> BuiltPartition:
    """A plan for ``cpu`` as the payload."""
    from dovetail.api import compile as compile_model

    payload = bytes(compile_model(model, providers=["cpu"]).serialize())
    return BuiltPartition(payload=payload, version=_VERSION, workspace_bytes=workspace_bytes)


def load_partition(device: HostDevice, stored: StoredPartition) -> HostDevicePartition:
    """The plan as an engine; only this version's are taken."""
    from dovetail.runtime.loading import Runtime

    if stored.version != _VERSION:
        raise ProviderError(
            "the partition was compiled by another version",
            where=f"provider '{device.name}', step '{stored.name}'",
            expected=_VERSION,
            got=stored.version,
            fix="build the plan again",
        )
    return HostDevicePartition(device, Runtime().deserialize_cuda_engine(bytes(stored.payload)), stored)


class HostDevicePartition(LoadedPartition):
    """A partition that runs over the device's memory, in the order of a stream."""

    def __init__(self, device: HostDevice, engine: Engine, stored: StoredPartition) -> None:
        self._device = device
        self._engine = engine
        self._name = stored.name
        self._outputs = list(stored.outputs)

    def bind(self, context: BindContext) -> BoundPartition:
        """The partition on a stream."""
        self._device.check("bind_partition")
        needed = self._device.options.workspace_bytes
        if context.workspace_bytes < needed or (needed and not context.workspace):
            raise ProviderError(
                "the workspace is smaller than was asked for",
                where=f"provider '{self._device.name}', step '{self._name}'",
                expected=needed,
                got=context.workspace_bytes,
            )
        return _BoundHostPartition(self, context, self._device.options.num_lanes)

    def workspace_bytes(self, input_shapes: Sequence[tuple[int, ...] | None]) -> int:
        """What its options say."""
        self._device.check("workspace_bytes")
        return self._device.options.workspace_bytes

    def run(self, inputs: Sequence[Any], outputs: list[Any], stream: Stream | None, workspace: int) -> None:
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

    def _write(self, arrays: Sequence[HostDeviceArray], targets: Sequence[HostDeviceArray], workspace: int) -> None:
        if workspace:  # whatever else lies there is lost before it is read
            size = self._device.options.workspace_bytes
            self._device.view_at(workspace, (size,), np.uint8, user=self._name).view()[...] = POISON
        for target, result in zip(targets, self._compute(arrays), strict=True):
            np.copyto(target.view(), result, casting="no")

    def close(self) -> None:
        """Let go of the engine."""
        self._engine.close()


class _BoundHostPartition(BoundPartition):
    """Such a partition for one bound run."""

    def __init__(self, partition: HostDevicePartition, context: BindContext, num_lanes: int) -> None:
        self._partition = partition
        self._stream = context.stream
        self._workspace = context.workspace
        self._lanes = [lane for lane in map(context.find_lane, range(num_lanes)) if lane is not None]
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
