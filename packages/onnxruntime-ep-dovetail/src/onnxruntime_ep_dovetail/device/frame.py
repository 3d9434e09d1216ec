"""Frames over memory of a device: partitions run on ONNX Runtime's stream and where its values lie, without copies.

What the engine reads on the host all the same, and results whose shapes only a run tells, are copied; such runs wait.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

import dovetail
from dovetail import ResourceError, UsageError
from dovetail.host_arrays import array_at
from dovetail.plan.manifest import ProgramRecord, StepRecord
from dovetail.provider.devices import Stream
from dovetail.runtime.devices.access import check_device_address, check_host_address
from onnxruntime_ep_dovetail.device.backends import Backend
from onnxruntime_ep_dovetail.device.shared import BackendDevice, get_device
from onnxruntime_ep_dovetail.library.contract import Shape
from onnxruntime_ep_dovetail.session.partition import Partition

__all__ = ["DeviceFrame", "DevicePartition", "place_partition"]


class _Contexts:
    """Contexts that nobody uses now, by the stream that they put their work on."""

    def __init__(self, engine: dovetail.Engine, device: BackendDevice, check: Callable[[], None] | None) -> None:
        self._engine = engine
        self._device = device
        self._check = check
        self._idle: dict[int, list[dovetail.ExecutionContext]] = {}
        self._lock = threading.Lock()
        device.users.add(self)

    def take(self, stream: Stream | None) -> dovetail.ExecutionContext:
        """A context on a stream."""
        handle = 0 if stream is None else stream.handle
        with self._lock:
            idle = self._idle.get(handle)
            if idle:
                return idle.pop()
        # An engine built for other providers (option ``providers``) has no work on the session's device.
        is_used = stream is not None and self._device.name in self._engine.device_names
        streams = {self._device.name: handle} if is_used else None
        return self._engine.create_execution_context(streams=streams, check=self._check)

    def put_back(self, context: dovetail.ExecutionContext, stream: Stream | None) -> None:
        """Let others use a context."""
        handle = 0 if stream is None else stream.handle
        with self._lock:
            self._idle.setdefault(handle, []).append(context)

    def forget_stream(self, handle: int) -> None:
        """Close the contexts of a stream that is about to be closed."""
        with self._lock:
            idle = self._idle.pop(handle, [])
        for context in idle:
            context.close()


@dataclass(frozen=True, kw_only=True, eq=False)
class DevicePartition(Partition):
    """A partition whose inputs and outputs lie in memory of a device."""

    device: BackendDevice
    host_inputs: frozenset[int] = field(default=frozenset())
    """The positions of inputs that ONNX Runtime keeps in memory of the host."""
    has_stream: bool = True

    def new_frame(self) -> DeviceFrame:
        """A frame for one more thread."""
        return DeviceFrame(self)

    @cached_property
    def contexts(self) -> _Contexts:
        """Those that no run uses."""
        return _Contexts(self.engine, self.device, self.check)

    @cached_property
    def device_inputs(self) -> frozenset[int]:
        """The positions of inputs that steps of the device read where they lie."""
        tensors = self.engine.manifest.inputs
        return frozenset(self.inputs.index(t.name) for t in tensors if t.memory == self.device.name) - self.host_inputs

    @cached_property
    def device_outputs(self) -> frozenset[int]:
        """The positions of outputs that steps of the device write where they shall lie."""
        tensors = self.engine.manifest.outputs
        return frozenset(self.outputs.index(t.name) for t in tensors if t.memory == self.device.name)

    @cached_property
    def copies_with_host(self) -> bool:
        """Whether a step copies between the device and the host.

        Such a run is not captured: a replay repeats the copies, and not the host steps that read or wrote the memory.
        """
        return any(map(_copies_with_host, self.engine.manifest.programs))


def _copies_with_host(program: ProgramRecord) -> bool:
    def is_with_host(step: StepRecord) -> bool:
        ends = [program.values[index].memory for index in (*step.inputs, *step.outputs) if index >= 0]
        return step.kind == "copy" and "" in ends

    return any(is_with_host(step) or any(map(_copies_with_host, step.bodies)) for step in program.steps)


def place_partition(
    partition: Partition,
    backend: Backend,
    host_inputs: frozenset[int] = frozenset(),
    check: Callable[[], None] | None = None,
) -> Partition:
    """The partition as it runs where the session's values lie; its runs call ``check`` between their steps."""
    if not backend.has_device_memory:
        return replace(partition, check=check)
    partition.engine.capture_graphs = False  # what ONNX Runtime captures is whole runs, this partition among the rest
    return DevicePartition(
        engine=partition.engine,
        inputs=partition.inputs,
        outputs=partition.outputs,
        input_dtypes=partition.input_dtypes,
        output_dtypes=partition.output_dtypes,
        check=check,
        device=get_device(backend.name),
        host_inputs=host_inputs,
    )


class DeviceFrame:
    """Runs a partition for one thread at a time."""

    def __init__(self, partition: DevicePartition) -> None:
        self._partition = partition
        self._device = partition.device
        self._input_shapes: tuple[Shape, ...] = ()
        self._output_shapes: tuple[Shape | None, ...] = ()
        self._addresses: tuple[int, ...] = ()
        self._inputs: list[Any] = []
        self._outputs: dict[str, Any] = {}
        self._stream: Stream | None = None
        self._results: dict[int, Any] = {}
        self._clock: dovetail.IProfiler | None = None

    # shapes

    def resize(self, shapes: tuple[Shape | None, ...], stream: int = 0, /) -> tuple[Shape | None, ...]:
        """Take new input shapes; results that are copied from the host are told as unknown."""
        partition = self._partition
        self._input_shapes, self._addresses = tuple(shape or () for shape in shapes), ()
        used = self._device.find_stream(stream)
        context = partition.contexts.take(used)  # never that of a graph, which keeps the memory of its own shapes
        try:
            for name, shape in zip(partition.inputs, self._input_shapes, strict=True):
                context.set_input_shape(name, shape)
            found = [self._find_shape(context, name) for name in partition.outputs]
        finally:
            partition.contexts.put_back(context, used)
        # What a step gives where a dimension is 0 is seen in a run.
        is_empty = any(0 in (shape or ()) for shape in (*self._input_shapes, *found))
        self._output_shapes = tuple(
            None if is_empty or shape is None or -1 in shape or index not in partition.device_outputs else shape
            for index, shape in enumerate(found)
        )
        return self._output_shapes

    def _find_shape(self, context: dovetail.ExecutionContext, name: str) -> Shape | None:
        """The shape of an output; None when even its number of dimensions is told by the run only."""
        is_ranked = self._partition.engine.tensor(name).dims is not None
        return context.find_shape(name) if is_ranked else None

    # running

    def run(self, addresses: tuple[int, ...], /) -> None:
        """Put the work on ONNX Runtime's stream, which comes last among the addresses."""
        try:
            self._run(addresses)
        except BaseException:
            recording = self._device.recording
            if recording is not None:
                recording.has_failed = True
            raise

    def _run(self, addresses: tuple[int, ...]) -> None:
        device, partition = self._device, self._partition
        stream = self._stream = device.find_stream(addresses[-1])
        self._check_capture()
        if addresses is not self._addresses:
            self._bind(addresses)
        launch = partial(self._launch, self._inputs, self._outputs, stream)
        recording = device.recording
        if recording is None:
            launch()
        else:
            key = (partition, self._input_shapes, self._output_shapes, addresses[:-1])
            recording.launch(key, launch, partition)

    def _launch(self, inputs: Sequence[Any], outputs: dict[str, Any], stream: Stream | None) -> None:
        device, partition = self._device, self._partition
        if len(partition.device_inputs) < len(inputs):
            inputs = self._fetch(inputs, stream)
        context = self._take_context(stream)
        try:
            results = context.run([inputs[position] for position in partition.input_order], outputs)
        finally:
            device.note_work(stream)
            self._put_back(context, stream)
        made = dict(zip(partition.output_order, results, strict=True))
        self._results = {i: made[i] for i, shape in enumerate(self._output_shapes) if shape is None}

    def _check_capture(self) -> None:
        partition = self._partition
        is_fixed = None not in self._output_shapes and len(partition.device_inputs) == len(partition.inputs)
        if self._device.is_capturing and (not is_fixed or partition.copies_with_host):
            raise UsageError(
                "a partition needs the host, for a step, elements of an input, or a shape that only a run tells",
                where=f"graph capture on back end '{self._device.name}'",
                fix="set graph_capture=0, or gpu_graph_id to -1 for such runs",
            )

    def _bind(self, addresses: tuple[int, ...]) -> None:
        partition, count = self._partition, len(self._partition.inputs)
        self._inputs = [
            self._array(index, addresses[index], shape, dtype)
            for index, (shape, dtype) in enumerate(zip(self._input_shapes, partition.input_dtypes, strict=True))
        ]
        self._outputs = {
            partition.outputs[index]: self._output(index, addresses[count + index], shape)
            for index, shape in enumerate(self._output_shapes)
            if shape is not None
        }
        self._addresses = addresses

    def _array(self, index: int, address: int, shape: Shape, dtype: np.dtype[Any]) -> Any:
        where = f"input '{self._partition.inputs[index]}'"
        if index in self._partition.host_inputs:
            check_host_address([self._device.provider], address, where)
            return array_at(address, shape, dtype)
        check_device_address(self._device.provider, address, where)
        return self._on_device(address, shape, dtype)

    def _output(self, index: int, address: int, shape: Shape) -> Any:
        check_device_address(self._device.provider, address, f"output '{self._partition.outputs[index]}'")
        return self._on_device(address, shape, self._partition.output_dtypes[index])

    def _on_device(self, address: int, shape: Shape, dtype: np.dtype[Any]) -> Any:
        if not address and 0 not in shape:
            raise ResourceError(self._device.shortage or "no memory", where=f"back end '{self._device.name}'")
        return self._device.array_at(address, shape, dtype)

    def _fetch(self, inputs: Sequence[Any], stream: Stream | None) -> list[Any]:
        """The inputs, those that the host reads copied there."""
        partition, fetched = self._partition, list(inputs)
        for index, array in enumerate(inputs):
            if index in partition.device_inputs or index in partition.host_inputs:
                continue
            fetched[index] = np.empty(self._input_shapes[index], partition.input_dtypes[index])
            if fetched[index].nbytes:
                self._device.copy(array, fetched[index], stream)
        self._device.wait(stream)
        return fetched

    # results whose shapes the run told

    def result(self, index: int, /) -> tuple[None, Shape]:
        """The shape of a result; ``fill`` copies it."""
        return None, tuple(self._results[index].shape)

    def fill(self, index: int, address: int, /) -> None:
        """Copy a result to where ONNX Runtime wants it."""
        result = np.ascontiguousarray(self._results[index])
        target = self._on_device(address, result.shape, result.dtype)
        self._device.copy(result, target, self._stream)
        self._device.wait(self._stream)  # the result is memory of the host and goes with the next run

    # contexts

    def _take_context(self, stream: Stream | None) -> dovetail.ExecutionContext:
        recording = self._device.recording
        if recording is None:
            taken = self._partition.contexts.take(stream)
            taken.profiler = self._clock
            return taken
        return recording.get_context(self._partition)

    def profile(self, clock: dovetail.IProfiler | None) -> None:
        """Run layer by layer from now on and tell a clock, or run as fast as can be again."""
        self._clock = clock

    def _put_back(self, context: dovetail.ExecutionContext, stream: Stream | None) -> None:
        if self._device.recording is None:
            self._partition.contexts.put_back(context, stream)
