"""One thread's runs for the C++ header: memory of inputs and outputs by address, and results handed over.

Tensors have numbers: inputs in the engine's order, then outputs. Memory is of the host, or where the tensor lies; what
lies elsewhere than its tensor is copied in every run.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dovetail.errors import InputError, UsageError
from dovetail.formats import packed_shape
from dovetail.plan.manifest import TensorRecord
from dovetail.provider.calls import call
from dovetail.runtime.bind.objects import refuse_address
from dovetail.runtime.devices.tensors import DeviceTensor
from dovetail.runtime.embedded.outputs import (
    CallerOutput,
    DeviceOutput,
    OutputMemory,
    OutputResult,
    OwnOutput,
    check_capacity,
    needed_bytes,
    read_memory,
)
from dovetail.runtime.engine import Engine
from dovetail.types import TensorFormat

__all__ = ["EmbeddedContext"]


class _Input(NamedTuple):
    """Memory of the caller's that an input is read from."""

    address: int
    shape: tuple[int, ...]
    needed_bytes: int
    is_there: bool
    """Whether it is where the tensor lies; else it is copied there."""


class _NewOutput(NamedTuple):
    """An output of a known shape that has new memory in every run."""

    output: OwnOutput
    shape: tuple[int, ...]
    size_bytes: int


class _Bindings(NamedTuple):
    """What a run has to do beside running, for the memory that is set."""

    copied: tuple[int, ...]
    """The inputs to copy to their device."""
    new: tuple[_NewOutput, ...]
    told: tuple[OutputMemory, ...]
    """The outputs whose shape each run tells."""


class EmbeddedContext:
    """A context as the header sees it. It may be used by one thread at a time."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._context = engine.create_execution_context()
        self._tensors: tuple[TensorRecord, ...] = (*engine.manifest.inputs, *engine.manifest.outputs)
        self._num_inputs = len(engine.manifest.inputs)
        self._updated = engine.updated_inputs
        self._reads_shapes = any(tensor.is_shape for tensor in self._tensors)
        """Whether the contents of inputs decide shapes, so that each run may have others."""
        self._inputs: dict[int, _Input] = {}
        self._outputs: dict[int, OutputMemory] = {}
        self._bindings: _Bindings | None = None
        """None when memory, shapes or the profile changed since the last run."""

    def set_input(self, index: int, address: int, size_bytes: int, shape: tuple[int, ...], is_there: bool) -> None:
        """Read an input from memory of the caller's, which must last until a run is done."""
        tensor = self._tensors[index]
        before = self._inputs.pop(index, None)
        bindings, self._bindings = self._bindings, None  # after a failure the input is not set
        if before is None or before.shape != shape or bindings is None:
            self._context.set_input_shape(tensor.name, shape)
            before = None
        needed = needed_bytes(tensor, shape) if before is None else before.needed_bytes
        check_capacity(tensor, "input", needed, size_bytes)
        if tensor.memory and not is_there:
            self._require_host_memory(tensor, address)
        given = self._inputs[index] = _Input(address, shape, needed, is_there or not tensor.memory)
        if before is None or before.is_there != given.is_there or tensor.name in self._updated:
            return
        if given.is_there:
            self._context.set_tensor_address(tensor.name, address)
        self._bindings = bindings

    def set_output(self, index: int, address: int, size_bytes: int, is_there: bool) -> None:
        """Write an output to memory of the caller's from the next run on."""
        tensor = self._tensors[index]
        refuse_address(tensor)
        if tensor.alias is not None:
            raise UsageError(f"it has the memory of input '{tensor.alias}'", where=f"output '{tensor.name}'")
        if tensor.memory and not is_there:
            self._require_host_memory(tensor, address)
        memory = CallerOutput(tensor, address, size_bytes)
        self._outputs[index] = memory if is_there or not tensor.memory else self._on_device(memory)
        self._bindings = None

    def set_profile(self, profile: int) -> None:
        """Choose the profile; shapes that do not fit it must be set again."""
        self._context.set_optimization_profile_async(profile)
        self._bindings = None

    def run(self, stream: int) -> None:
        """Run with what is set, on a queue of the caller's or, with 0, on the context's own."""
        bindings = self._bindings
        if bindings is None:
            bindings = self._bindings = self._bind()
        for output in bindings.told:
            output.shape = None
        for output, _, size_bytes in bindings.new:
            output.shape = None
            self._context.set_tensor_address(output.tensor.name, output.reserve(size_bytes))
        copies = [self._copy_in(index) for index in bindings.copied]
        self._context.execute_async_v3(stream)
        for tensor in copies:  # they go now, and a queue of the caller's may still read them
            call(tensor.device, "synchronize", tensor.provider.synchronize)
        for output, shape, _ in bindings.new:
            output.shape = shape
        for output in bindings.told:
            output.finish()

    def find_shape(self, index: int) -> tuple[int, ...]:
        """The shape of a tensor for the inputs that are set; -1 for what is not known before a run."""
        return self._context.find_shape(self._tensors[index].name)

    def take_output(self, index: int) -> OutputResult:
        """The result of the last run; memory that is not the caller's is handed over with it."""
        output = self._outputs.get(index)
        if output is None:
            where = f"output '{self._tensors[index].name}'"
            raise UsageError("there is no result", where=where, fix="call run first")
        return output.take()

    def close(self) -> None:
        """Destroy the attached plugins."""
        self._context.close()

    def _bind(self) -> _Bindings:
        self._require_inputs()
        for index, given in self._inputs.items():
            if given.is_there:
                self._context.set_tensor_address(self._tensors[index].name, given.address)
        new, told = [], []
        for index in range(self._num_inputs, len(self._tensors)):
            output = self._outputs[index] = self._choose_output(index)
            shape = self._find_fixed_shape(output)
            self._context.set_output_allocator(output.tensor.name, output if shape is None else None)
            if shape is None:
                told.append(output)
            elif isinstance(output, OwnOutput):
                new.append(_NewOutput(output, shape, needed_bytes(output.tensor, shape)))
            elif isinstance(output, CallerOutput):
                self._bind_in_place(output, shape)
        copied = tuple(index for index, given in self._inputs.items() if not given.is_there)
        return _Bindings(copied, tuple(new), tuple(told))

    def _require_host_memory(self, tensor: TensorRecord, address: int) -> None:
        """Check memory that is copied to or from a device: the host reads and writes it."""
        check = self._engine.address_check
        if check is not None:
            check("", address, f"tensor '{tensor.name}'")

    def _require_inputs(self) -> None:
        missing = [self._tensors[index] for index in range(self._num_inputs) if index not in self._inputs]
        for tensor in missing:
            refuse_address(tensor)
        if missing:
            names = ", ".join(tensor.name for tensor in missing)
            raise InputError("inputs are not set", where=names, fix="call setInput for each")

    def _choose_output(self, index: int) -> OutputMemory:
        """What the caller gave; else the memory of the input that the output shares it with; else new memory."""
        tensor = self._tensors[index]
        refuse_address(tensor)
        if tensor.alias is not None:
            return self._share_input(tensor)
        chosen = self._outputs.get(index)
        if chosen is None:
            chosen = self._on_device(OwnOutput(tensor)) if tensor.memory else OwnOutput(tensor)
        return chosen

    def _share_input(self, tensor: TensorRecord) -> OutputMemory:
        given = next(g for i, g in self._inputs.items() if self._tensors[i].name == tensor.alias)
        if not given.is_there:
            raise UsageError(
                f"input '{tensor.alias}' is updated in place on device '{tensor.memory}'",
                where=f"output '{tensor.name}'",
                fix="set that input with memory of the device",
            )
        return CallerOutput(tensor, given.address, needed_bytes(tensor, given.shape))

    def _on_device(self, target: OwnOutput | CallerOutput) -> DeviceOutput:
        return DeviceOutput(self._engine.providers[target.tensor.memory], target)

    def _find_fixed_shape(self, output: OutputMemory) -> tuple[int, ...] | None:
        """The shape of an output that every run over these inputs has; None where each run has to tell it."""
        is_told = output.tensor.dims is None or self._reads_shapes
        if isinstance(output, DeviceOutput) or (is_told and output.tensor.alias is None):
            return None
        shape = self._context.find_shape(output.tensor.name)
        return None if -1 in shape else shape

    def _bind_in_place(self, output: CallerOutput, shape: tuple[int, ...]) -> None:
        check_capacity(output.tensor, "output", needed_bytes(output.tensor, shape), output.size_bytes)
        output.shape = shape
        self._context.set_tensor_address(output.tensor.name, output.address)

    def _copy_in(self, index: int) -> DeviceTensor:
        tensor, given = self._tensors[index], self._inputs[index]
        physical = packed_shape(given.shape, TensorFormat[tensor.format])
        array = read_memory(given.address, physical, np.dtype(tensor.dtype))
        copied = DeviceTensor.copy_of(self._engine.providers[tensor.memory], array)
        self._context.set_tensor_address(tensor.name, copied.address)
        return copied
