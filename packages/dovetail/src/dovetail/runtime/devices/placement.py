"""Arrays of devices as inputs and outputs of an engine: the steps on the device use them, and a copy is saved.

An input can be given so when nobody but steps of that device needs its contents, and an output when one of them makes
it. Everything else lies in host memory, and the plan has the copies for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dovetail.errors import InputError
from dovetail.plan.manifest import Manifest, ProgramRecord, StepRecord, TensorRecord
from dovetail.provider.calls import call
from dovetail.provider.options import Providers
from dovetail.provider.shape_slots import reads_only_shape
from dovetail.runtime.steps.base import BoundStep, Step
from dovetail.runtime.steps.copy import CopyStep
from dovetail.runtime.steps.frame import Frame

__all__ = ["DeviceIO", "device_inputs", "device_outputs", "import_input", "import_outputs"]


def device_inputs(program: ProgramRecord, manifest: Manifest) -> dict[int, str]:
    """The inputs, by position, that may be arrays of a device, with the provider of that device."""
    readers = Counter(index for step in program.steps for index in _readers(step))
    found = {}
    for position, (index, tensor) in enumerate(zip(program.inputs, manifest.inputs, strict=True)):
        copies = [step for step in program.steps if step.kind == "copy" and step.inputs == [index]]
        is_plain = tensor.format == "LINEAR" and not tensor.is_shape and index not in program.outputs
        is_plain = is_plain and all(value.alias != index for value in program.values)
        if len(copies) == 1 == readers[index] and is_plain and _is_free(program, copies[0].outputs[0]):
            found[position] = program.values[copies[0].outputs[0]].memory
    return found


def device_outputs(program: ProgramRecord, manifest: Manifest) -> dict[int, str]:
    """The outputs, by position, that may be written to arrays of a device, with the provider of that device."""
    readers = Counter(index for step in program.steps for index in _readers(step))
    makers = {step.outputs[0]: step for step in program.steps if step.kind == "copy"}
    found = {}
    for position, (index, tensor) in enumerate(zip(program.outputs, manifest.outputs, strict=True)):
        step, value = makers.get(index), program.values[index]
        if step is None or value.kind != "output" or tensor.format != "LINEAR" or readers[index]:
            continue
        source = program.values[step.inputs[0]]
        if source.memory and _is_free(program, step.inputs[0]):
            found[position] = source.memory
    return found


def _readers(step: StepRecord) -> Sequence[int]:
    """The values whose contents a step needs."""
    captured = [outside for body in step.bodies for outside, _ in body.captures]
    is_idle = step.kind == "kernel" and reads_only_shape(step.op, step.domain)
    return [*(() if is_idle else step.inputs), *step.shape_inputs, *captured]


def _is_free(program: ProgramRecord, index: int) -> bool:
    """Whether a planned value of a device may lie anywhere: it shares its memory with no other value."""
    value = program.values[index]
    is_shared = value.alias is not None or any(other.alias == index for other in program.values)
    return value.kind == "planned" and bool(value.memory) and not is_shared


def import_input(value: Any, tensor: TensorRecord, provider: str | None, providers: Providers) -> Any | None:
    """A caller's array for an input that steps of a device read; None when it does not lie there."""
    if provider is None or isinstance(value, np.ndarray):
        return None
    array = call(provider, "import_array", providers[provider].import_array, value)
    if array is not None:
        _check_type(array, tensor, f"input '{tensor.name}'")
    return array


def import_outputs(
    outputs: Mapping[str, Any],
    manifest: Manifest,
    program: ProgramRecord,
    allowed: Mapping[int, str],
    providers: Providers,
) -> dict[int, Any]:
    """Callers' arrays that outputs are to be written to, by the number of the output's value."""
    names = [tensor.name for tensor in manifest.outputs]
    found = {}
    for name, value in outputs.items():
        position = names.index(name) if name in names else -1
        if position not in allowed:
            possible = ", ".join(names[index] for index in allowed) or "none"
            raise InputError(f"'{name}' is no output that a device makes", expected=f"one of: {possible}")
        provider, tensor = allowed[position], manifest.outputs[position]
        array = call(provider, "import_array", providers[provider].import_array, value)
        if array is None:
            got = type(value).__name__
            raise InputError(f"not an array of provider '{provider}'", where=f"output '{name}'", got=got)
        _check_type(array, tensor, f"output '{name}'")
        found[program.outputs[position]] = array
    return found


def _check_type(array: Any, tensor: TensorRecord, where: str) -> None:
    if array.dtype != np.dtype(tensor.dtype):
        raise InputError("wrong type", where=where, expected=tensor.dtype, got=array.dtype)


class DeviceIO:
    """Callers' arrays on devices in the runs of one program: they stand in for memory of the context.

    An input that is no array of the host takes the place of the memory it would be copied to, and an output that is
    none that of the memory it would be copied from; the copy is left out.
    """

    name = "bind arrays of devices"

    def __init__(self, program: ProgramRecord, steps: Sequence[Step]) -> None:
        inputs, outputs = set(program.inputs), set(program.outputs)
        copies = [step for step in steps if isinstance(step, CopyStep)]
        self._inputs = [c for c in copies if c.source in inputs and _is_free(program, c.target)]
        self._outputs = [c for c in copies if c.target in outputs and _is_free(program, c.source)]
        self.movable = frozenset([c.target for c in self._inputs] + [c.source for c in self._outputs])
        """The values that may lie elsewhere in each run."""

    def bind(self, frame: Frame) -> BoundStep:
        """What begins a run: it looks what was given for it."""
        values, own = frame.values, {index: frame.values[index] for index in self.movable}

        def run() -> None:
            for copy in self._inputs:
                _use(values, copy, copy.target, own[copy.target], values[copy.source])
            for copy in self._outputs:
                _use(values, copy, copy.source, own[copy.source], values[copy.target])

        return run


def _use(values: list[Any], copy: CopyStep, index: int, own: Any, given: Any) -> None:
    """Have the steps of the device use a given array, or their own memory where the array is the host's."""
    array = None if isinstance(given, np.ndarray) else given
    if array is not None and tuple(array.shape) != tuple(own.shape):
        raise InputError("wrong shape", where=f"array for '{copy.name}'", expected=own.shape, got=array.shape)
    copy.given, copy.event = array, None
    values[index] = own if array is None else array
