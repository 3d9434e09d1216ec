"""If, Loop and Scan: steps whose bodies are programs of their own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from dovetail.errors import InputError, PlanError
from dovetail.plan.attributes import decode_attributes
from dovetail.plan.manifest import ProgramRecord, StepRecord, ValueRecord
from dovetail.runtime.steps.base import Array, BoundStep, Step, own
from dovetail.runtime.steps.frame import Frame
from dovetail.runtime.steps.loop import BoundSteps, Entry

__all__ = ["Body", "make_control_step", "walk_all_steps", "walk_bodies"]

BindSteps = Callable[[Sequence[Step], Frame], BoundSteps]
"""Binds the steps of a body to its frame, with the waits that devices need."""
Watch = Callable[["Body", Sequence[Entry], Frame], None]
"""Runs the steps of a body one by one and looks at the values in between."""


class Body:
    """The program of a branch or of a loop's body in one context."""

    def __init__(
        self, program: ProgramRecord, constants: Mapping[int, Any], steps: list[Step], bind_steps: BindSteps
    ) -> None:
        self.program = program
        self.steps = steps
        self.watch: Watch | None = None
        """Runs the steps in place of the body itself, for tools that look at every value."""
        self._bind_steps = bind_steps
        self._constants = dict(constants)

    def replace_constant(self, blob: str, arrays: Mapping[str, Any]) -> None:
        """Use a new array for a constant, by the memory it lies in, in everything that is bound from now on."""
        for index, value in enumerate(self.program.values):
            if value.blob == blob:
                self._constants[index] = arrays[value.memory]

    def bind(self, outer: Frame) -> BoundBody:
        """The body over a frame of its own inside an outer one."""
        values: list[Any] = [None] * (len(self.program.values) + 1)
        for index, array in self._constants.items():
            values[index] = array
        symbols = {symbol.name: symbol for symbol in self.program.symbols}
        fixed = frozenset(self._constants)
        shapes = [None] * len(values)
        frame = Frame(values, shapes, fixed=fixed, symbols=symbols, workspaces=outer.workspaces)
        # Its steps are told, ended and closed with the run.
        frame.announcers, frame.interruptible, frame.closers = outer.announcers, outer.interruptible, outer.closers
        return BoundBody(self, outer, frame, self._bind_steps)


class BoundBody:
    """A body that can be called: inputs in, outputs out; what it captures is taken from the outer frame."""

    def __init__(self, body: Body, outer: Frame, frame: Frame, bind_steps: BindSteps) -> None:
        self.program = body.program
        self._body = body
        self._outer = outer
        self._frame = frame
        self._empty = list(frame.values)
        self._steps = bind_steps(body.steps, frame)

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        """Run the body once."""
        values, program = self._frame.values, self.program
        for index, value in zip(program.inputs, inputs, strict=True):
            values[index] = value
        for outside, inside in program.captures:
            values[inside] = self._outer.values[outside]
        try:
            if self._body.watch is None:
                self._steps.run()
            else:
                self._body.watch(self._body, self._steps.entries, self._frame)
            return [values[index] for index in program.outputs]
        finally:
            values[:] = self._empty


def walk_all_steps(steps: Sequence[Step]) -> Iterator[Step]:
    """Every step, those of bodies after the one that has them, as ``plan.workspaces.walk_steps`` counts records."""
    for step in steps:
        yield step
        for body in step.bodies:
            yield from walk_all_steps(body.steps)


def walk_bodies(steps: Sequence[Step]) -> Iterator[Body]:
    """Every body in these steps, those in bodies too."""
    for step in steps:
        for body in step.bodies:
            yield body
            yield from walk_bodies(body.steps)


class ControlStep(Step):
    """What the three kinds share: bodies, inputs and where results go."""

    bodies: Sequence[Body]

    def __init__(self, record: StepRecord, bodies: list[Body]) -> None:
        super().__init__(record)
        self.bodies = bodies
        self._record = record

    def bind(self, frame: Frame) -> BoundStep:
        """The step over a frame, its bodies over frames of their own."""
        return partial(self._run, frame.values, [body.bind(frame) for body in self.bodies])

    @abstractmethod
    def _run(self, values: list[Any], bodies: Sequence[BoundBody]) -> None:
        """Run the step."""

    def _store(self, values: list[Any], results: Sequence[Any]) -> None:
        for index, result in zip(self._record.outputs, results, strict=False):
            if index >= 0:
                # A body may return a capture or its own input, which the caller's arena may reuse.
                values[index] = result.copy() if isinstance(result, np.ndarray) else own(result, ())

    def _inputs(self, values: list[Any]) -> list[Any]:
        return [values[index] for index in self._record.inputs]


class IfStep(ControlStep):
    """Runs the first body when the condition holds, else the second."""

    def _run(self, values: list[Any], bodies: Sequence[BoundBody]) -> None:
        condition = bool(np.asarray(values[self._record.inputs[0]]).reshape(-1)[0])
        self._store(values, bodies[0 if condition else 1](()))


class LoopStep(ControlStep):
    """Runs its body until the count or the condition ends; scan outputs are stacked on a new first axis."""

    def _run(self, values: list[Any], bodies: Sequence[BoundBody]) -> None:
        trip, condition, *state = self._inputs(values)
        body = bodies[0]
        limit = None if trip is None else int(np.asarray(trip).reshape(-1)[0])
        going = True if condition is None else bool(np.asarray(condition).reshape(-1)[0])
        count = 0
        scans: list[list[Any]] = [[] for _ in range(len(body.program.outputs) - 1 - len(state))]
        while going and (limit is None or count < limit):
            inputs = (np.asarray(count, np.int64), np.asarray(True), *state)
            going_on, *rest = body(inputs)
            going, state = bool(np.asarray(going_on).reshape(-1)[0]), rest[: len(state)]
            for collected, part in zip(scans, rest[len(state) :], strict=True):
                collected.append(part)
            count += 1
        self._store(values, (*state, *self._stack(body.program, scans, len(state))))

    def _stack(self, body: ProgramRecord, scans: list[list[Any]], num_state: int) -> list[Array]:
        return [
            _stack(parts, body.values[body.outputs[1 + num_state + index]], 0, self.name)
            for index, parts in enumerate(scans)
        ]


class ScanStep(ControlStep):
    """Walks its scan inputs along an axis, carrying state."""

    def __init__(self, record: StepRecord, bodies: list[Body]) -> None:
        super().__init__(record, bodies)
        attributes = decode_attributes(record.attributes, lambda _: None)
        self._num_scans = int(attributes["num_scan_inputs"])
        num_state = len(record.inputs) - self._num_scans
        num_outputs = len(record.outputs) - num_state
        self._in_axes = attributes.get("scan_input_axes") or [0] * self._num_scans
        self._in_directions = attributes.get("scan_input_directions") or [0] * self._num_scans
        self._out_axes = attributes.get("scan_output_axes") or [0] * num_outputs
        self._out_directions = attributes.get("scan_output_directions") or [0] * num_outputs

    def _run(self, values: list[Any], bodies: Sequence[BoundBody]) -> None:
        inputs, body = self._inputs(values), bodies[0]
        num_state = len(inputs) - self._num_scans
        state, scanned = inputs[:num_state], self._oriented(inputs[num_state:])
        lengths = {array.shape[0] for array in scanned}
        if len(lengths) != 1:
            raise InputError(f"scan '{self.name}': inputs have different lengths", got=sorted(lengths))
        collected: list[list[Any]] = [[] for _ in self._out_axes]
        for position in range(lengths.pop()):
            results = body((*state, *(array[position] for array in scanned)))
            state = results[:num_state]
            for parts, part in zip(collected, results[num_state:], strict=True):
                parts.append(part)
        self._store(values, (*state, *self._stack(body.program, collected, num_state)))

    def _oriented(self, arrays: Sequence[Array]) -> list[Array]:
        moved = [np.moveaxis(a, axis, 0) for a, axis in zip(arrays, self._in_axes, strict=True)]
        return [a[::-1] if direction else a for a, direction in zip(moved, self._in_directions, strict=True)]

    def _stack(self, body: ProgramRecord, collected: list[list[Any]], num_state: int) -> list[Array]:
        stacked = []
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
    dims = [size or 0 for size in value.sizes or ()]
    dims.insert(axis if axis >= 0 else axis + len(dims) + 1, 0)
    return np.empty(dims, np.dtype(value.dtype))


_KINDS: dict[str, type[ControlStep]] = {"If": IfStep, "Loop": LoopStep, "Scan": ScanStep}


def make_control_step(record: StepRecord, bodies: list[Body]) -> Step:
    """The step for a control-flow record."""
    if record.op not in _KINDS:
        raise PlanError(f"control flow '{record.op}' is not known", where=f"step '{record.name}'")
    return _KINDS[record.op](record, bodies)
