"""If, Loop and Scan: steps whose bodies are programs of their own, run over fresh frames."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dovetail.errors import InputError, InternalError
from dovetail.plan.attributes import decode_attributes
from dovetail.plan.manifest import ProgramRecord, StepRecord, ValueRecord
from dovetail.runtime.devices import ContextDevices
from dovetail.runtime.schedule import Schedule, uses_devices
from dovetail.runtime.steps import Array, Frame, Step, make_segments, own, run_segments

__all__ = ["BodyRunner", "make_control_step"]


class BodyRunner:
    """A body that can be called: inputs and captured values in, outputs out."""

    def __init__(
        self, program: ProgramRecord, constants: dict[int, Array], steps: list[Step], devices: ContextDevices
    ) -> None:
        self.program = program
        self._devices = devices
        self.steps = steps
        self._template: Frame = [None] * (len(program.values) + 1)
        for index, array in constants.items():
            self._template[index] = array

    @property
    def steps(self) -> list[Step]:
        """The steps of the body, in order."""
        return self._steps

    @steps.setter
    def steps(self, steps: list[Step]) -> None:
        self._steps = steps
        is_mixed = uses_devices(self.program)
        self._segments = Schedule(self.program, steps, self._devices).segments if is_mixed else make_segments(steps)

    def replace_constant(self, blob: str, arrays: Mapping[str, Any]) -> None:
        """Use a new array for a constant, by the memory it lies in."""
        for index, value in enumerate(self.program.values):
            if value.blob == blob:
                self._template[index] = arrays[value.memory]

    def __call__(self, outer: Frame, inputs: Sequence[Any]) -> list[Any]:
        """Run the body once over a fresh frame."""
        frame = self._template.copy()
        for index, value in zip(self.program.inputs, inputs, strict=True):
            frame[index] = value
        for outside, inside in self.program.captures:
            frame[inside] = outer[outside]
        run_segments(self._segments, frame)
        return [frame[index] for index in self.program.outputs]


class _ControlStep(ABC):
    """What the three kinds share: reading inputs and storing results."""

    def __init__(self, record: StepRecord, values: Sequence[ValueRecord], bodies: list[BodyRunner]) -> None:
        self.name = record.name
        self.bodies = bodies
        self._record = record
        self._values = values

    @abstractmethod
    def __call__(self, frame: Frame) -> None:
        """Run the step."""

    def _store(self, frame: Frame, results: Sequence[Any]) -> None:
        for index, result in zip(self._record.outputs, results, strict=False):
            if index >= 0:
                # A body may return a capture or its own input, which the caller's arena may reuse.
                frame[index] = result.copy() if isinstance(result, np.ndarray) else own(result, ())

    def _inputs(self, frame: Frame) -> list[Any]:
        return [frame[index] for index in self._record.inputs]


class IfStep(_ControlStep):
    """Runs the first body when the condition holds, else the second."""

    def __call__(self, frame: Frame) -> None:
        condition = bool(np.asarray(frame[self._record.inputs[0]]).reshape(-1)[0])
        self._store(frame, self.bodies[0 if condition else 1](frame, ()))


class LoopStep(_ControlStep):
    """Runs its body until the count or the condition ends; scan outputs are stacked on a new first axis."""

    def __call__(self, frame: Frame) -> None:
        trip, condition, *state = self._inputs(frame)
        limit = None if trip is None else int(np.asarray(trip).reshape(-1)[0])
        going = True if condition is None else bool(np.asarray(condition).reshape(-1)[0])
        count = 0
        scans: list[list[Any]] = [[] for _ in range(len(self.bodies[0].program.outputs) - 1 - len(state))]
        while going and (limit is None or count < limit):
            inputs = (np.asarray(count, np.int64), np.asarray(True), *state)
            going_on, *rest = self.bodies[0](frame, inputs)
            going, state = bool(np.asarray(going_on).reshape(-1)[0]), rest[: len(state)]
            for collected, part in zip(scans, rest[len(state) :], strict=True):
                collected.append(part)
            count += 1
        self._store(frame, (*state, *self._stack(scans, len(state))))

    def _stack(self, scans: list[list[Any]], num_state: int) -> list[Array]:
        body = self.bodies[0].program
        return [
            _stack(parts, body.values[body.outputs[1 + num_state + index]], 0, self.name)
            for index, parts in enumerate(scans)
        ]


class ScanStep(_ControlStep):
    """Walks its scan inputs along an axis, carrying state."""

    def __init__(self, record: StepRecord, values: Sequence[ValueRecord], bodies: list[BodyRunner]) -> None:
        super().__init__(record, values, bodies)
        attributes = decode_attributes(record.attributes, lambda _: None)
        self._num_scans = int(attributes["num_scan_inputs"])
        num_state = len(record.inputs) - self._num_scans
        num_outputs = len(record.outputs) - num_state
        self._in_axes = attributes.get("scan_input_axes") or [0] * self._num_scans
        self._in_directions = attributes.get("scan_input_directions") or [0] * self._num_scans
        self._out_axes = attributes.get("scan_output_axes") or [0] * num_outputs
        self._out_directions = attributes.get("scan_output_directions") or [0] * num_outputs

    def __call__(self, frame: Frame) -> None:
        inputs = self._inputs(frame)
        num_state = len(inputs) - self._num_scans
        state, scanned = inputs[:num_state], self._oriented(inputs[num_state:])
        lengths = {array.shape[0] for array in scanned}
        if len(lengths) != 1:
            raise InputError(f"scan '{self.name}': inputs have different lengths", got=sorted(lengths))
        collected: list[list[Any]] = [[] for _ in self._out_axes]
        for position in range(lengths.pop()):
            results = self.bodies[0](frame, (*state, *(array[position] for array in scanned)))
            state = results[:num_state]
            for parts, part in zip(collected, results[num_state:], strict=True):
                parts.append(part)
        self._store(frame, (*state, *self._stack(collected, num_state)))

    def _oriented(self, arrays: Sequence[Array]) -> list[Array]:
        moved = [np.moveaxis(a, axis, 0) for a, axis in zip(arrays, self._in_axes, strict=True)]
        return [a[::-1] if direction else a for a, direction in zip(moved, self._in_directions, strict=True)]

    def _stack(self, collected: list[list[Any]], num_state: int) -> list[Array]:
        body, stacked = self.bodies[0].program, []
        for index, parts in enumerate(collected):
            parts = parts[::-1] if self._out_directions[index] else parts
            value = body.values[body.outputs[num_state + index]]
            stacked.append(_stack(parts, value, self._out_axes[index], self.name))
        return stacked


def _stack(parts: list[Any], value: ValueRecord, axis: int, name: str) -> Array:
    if parts:
        if len({np.shape(part) for part in parts}) != 1:
            raise InputError(f"'{name}': the parts of a scan output have different shapes; they cannot be joined")
        return np.stack(parts, axis=axis)
    dims = [dim if isinstance(dim, int) else 0 for dim in value.dims or []]
    dims.insert(axis if axis >= 0 else axis + len(dims) + 1, 0)
    return np.empty(dims, np.dtype(value.dtype))


_KINDS: dict[str, type[_ControlStep]] = {"If": IfStep, "Loop": LoopStep, "Scan": ScanStep}


def make_control_step(record: StepRecord, values: Sequence[ValueRecord], bodies: list[BodyRunner]) -> Step:
    """The step for a control-flow record."""
    if record.op not in _KINDS:
        raise InternalError(f"control flow '{record.op}' is not known", where=f"step '{record.name}'")
    return _KINDS[record.op](record, values, bodies)
