"""One program in one context: its steps with the attached plugins, its memory, and the runs bound most recently."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NoReturn

import numpy as np

from dovetail.allocators import IGpuAllocator
from dovetail.decoding import judging
from dovetail.errors import DovetailError, InputError, PlanError, ResourceError, UsageError
from dovetail.formats import packed_shape
from dovetail.plan.manifest import Manifest, ProgramRecord
from dovetail.runtime.bind.border import BoundBorder, RunBorder
from dovetail.runtime.bind.outputs import Outputs
from dovetail.runtime.bind.profiles import check_profile, check_values
from dovetail.runtime.bind.run import BoundRun, Visit
from dovetail.runtime.bind.shapes import ShapePlan
from dovetail.runtime.closing import close_all
from dovetail.runtime.devices.schedule import Schedule
from dovetail.runtime.devices.streams import ContextDevices
from dovetail.runtime.devices.uncaptured import UncapturedStep
from dovetail.runtime.limits import RunLimits
from dovetail.runtime.memory.arenas import make_arenas
from dovetail.runtime.memory.checks import memories_of
from dovetail.runtime.steps.base import Step, check_same_size
from dovetail.runtime.steps.control import walk_all_steps, walk_bodies
from dovetail.runtime.steps.frame import Frame, Shape
from dovetail.runtime.steps.loop import Entry, Silence, StepFailure, make_silence
from dovetail.runtime.steps.plugin import PluginStep
from dovetail.types import TensorFormat

__all__ = ["ProgramInstance", "StepMaker"]

StepMaker = Callable[[Silence], list[Step]]
"""Makes the steps of a program for one context, of which kernels are entered as it says."""

_MAX_RUNS: Final = 16
"""Bound runs that are kept; a caller with ever new shapes must not make a context grow."""


class ProgramInstance:
    """Binds a program to shapes, again and again; memory is shared by all its runs.

    Args:
        manifest: Of the plan.
        profile: The profile, and so the program.
        constants: Arrays by the number of their value.
        make_steps: Makes the steps.
        devices: The streams of the context.
        allocator: Where the host's memory comes from; None for the process itself.
    """

    def __init__(
        self,
        manifest: Manifest,
        profile: int,
        constants: Mapping[int, Any],
        make_steps: StepMaker,
        *,
        devices: ContextDevices,
        allocator: IGpuAllocator | None = None,
    ) -> None:
        self.manifest = manifest
        self.program: ProgramRecord = manifest.programs[profile]
        self.devices = devices
        self.silence = make_silence()
        """How kernels are entered, so that floating-point warnings are silenced."""
        self.announced: BoundRun | None = None
        """The run whose shapes the plugins were told last."""
        self.profile: Visit | None = None
        """Runs the steps of every run one by one and takes their times; None for runs as fast as can be."""
        self.report: Callable[[Exception], None] = lambda _: None
        """Told of every error of a run before it is raised."""
        self.limits: RunLimits | None = None
        """What a run may take; None for no limits."""
        self._profile = profile
        self._constants = dict(constants)
        bounds = [dim for tensor in manifest.outputs for dim in (*(tensor.dims or ()), *(tensor.max_dims or ()))]
        self.shapes = ShapePlan(self.program, bounds)
        self._dtypes = [np.dtype(value.dtype) for value in self.program.values]
        self._symbols = {symbol.name: symbol for symbol in self.program.symbols}
        self._arenas = make_arenas(
            self.program, self.shapes.placed, devices, is_open=manifest.open, allocator=allocator
        )
        self._runs: dict[Any, BoundRun] = {}
        """By the shapes of the inputs, and the elements that shapes depend on; the most recent last."""
        self._latest: BoundRun | None = None
        self._is_closed = False
        self.steps = make_steps(self.silence)
        self._use_devices()

    # bound runs

    def find(self, shapes: tuple[Shape | None, ...], inputs: Sequence[Any] = ()) -> BoundRun:
        """The run over inputs of these shapes, bound now unless it is known.

        Args:
            shapes: Logical, one for each input; None for one that is no array.
            inputs: The inputs, where their contents decide shapes.
        """
        key: Any = shapes
        if self.shapes.has_elements:
            check_values(self.manifest, self._profile, inputs)
            key = (shapes, self.shapes.symbol_values(shapes, inputs))
        run = self._runs.get(key)
        if run is None:
            with judging(_unusable):
                run = self._bind(key, shapes, inputs)
        elif run is not self._latest:
            self._runs[key] = self._runs.pop(key)
        self._latest = run
        return run

    def _bind(self, key: Any, shapes: tuple[Shape | None, ...], inputs: Sequence[Any]) -> BoundRun:
        if self._is_closed:
            raise UsageError("the context is closed", fix="create another: engine.create_execution_context()")
        symbols, found = self.infer(shapes, inputs)
        # Before the views of this run are made: memory that moves takes those of all others with it.
        scratch = self._find_scratch(found)
        place = (symbols, scratch)
        if self.limits is not None:
            self._check_memory(self.limits, found, scratch, place)
        try:
            moved = [arena.reserve(found, self._dtypes, scratch, place) for arena in self._arenas]
        except Exception:
            self.forget()  # a block that could not grow is gone all the same
            raise
        if any(moved):
            self.forget()
        while len(self._runs) >= _MAX_RUNS:
            self._drop(next(iter(self._runs)))
        frame = self._make_frame(symbols, found, scratch, place)
        entries = [Entry(step.name, step.bind(frame), step.is_quiet) for step in self.steps]
        logical = [frame.shapes[index] for index in self.program.outputs]
        physical = [self.physical_shape(frame, index) for index in self.program.outputs]
        outputs = Outputs(self.manifest, self.program, logical, physical)
        run = self._runs[key] = BoundRun(self, frame, entries, outputs, symbols)
        return run

    @property
    def arena_bytes(self) -> int:
        """How much memory planned values take."""
        return sum(arena.size_bytes for arena in self._arenas)

    def _check_memory(self, limits: RunLimits, found: Sequence[Any], scratch: tuple[int, ...], place: Hashable) -> None:
        """Refuse shapes whose values take more than a run may, before memory is taken for them."""
        planned = sum(arena.find_size_bytes(found, self._dtypes, scratch, place) for arena in self._arenas)
        outputs = {index: found[index] for index in self.program.outputs if found[index] is not None}
        limits.check_memory(
            planned + sum(math.prod(shape) * self._dtypes[index].itemsize for index, shape in outputs.items())
        )

    def infer(self, shapes: Sequence[Shape | None], inputs: Sequence[Any] = ()) -> tuple[tuple[int, ...], list[Any]]:
        """The symbols that inputs of these shapes decide, and the shape of every value that is known before a run."""
        for tensor, shape in zip(self.manifest.inputs, shapes, strict=True):
            if shape is not None:
                check_profile(self.manifest, self._profile, tensor, shape)
        symbols = self.shapes.symbol_values(shapes, inputs)
        found = self.shapes.evaluate(symbols, shapes)
        for index, array in self._constants.items():
            found[index] = array.shape
        return symbols, found

    def _find_scratch(self, found: Sequence[Any]) -> tuple[int, ...]:
        """How much scratch memory each step needs, those of bodies too; without bounds the steps are asked."""
        if not self.manifest.open:
            return tuple(0 if s.record.asks_workspace else s.record.workspace_bytes for s in walk_all_steps(self.steps))
        own = set(self.steps)
        return tuple(s.find_workspace_bytes(found if s in own else None) for s in walk_all_steps(self.steps))

    def _make_frame(
        self, symbols: tuple[int, ...], found: list[Any], scratch: tuple[int, ...], place: Hashable
    ) -> Frame:
        values: list[Any] = [None] * (len(self.program.values) + 1)
        for index, array in self._constants.items():
            values[index] = array
        for arena in self._arenas:
            arena.place(values, found, self._dtypes, place)
        is_loose = self.shapes.has_empty(symbols)
        if is_loose:
            self._unplace_partitions(values, found)
        placed = [index for index, value in enumerate(values[:-1]) if value is not None]
        fixed = frozenset(self._constants if is_loose else placed)
        steps = list(walk_all_steps(self.steps))
        given = {n: space for arena in self._arenas for n, space in arena.place_workspaces(scratch, place).items()}
        workspaces = {steps[number]: workspace for number, workspace in given.items()}
        return Frame(values, found, fixed=fixed, symbols=self._symbols, is_loose=is_loose, workspaces=workspaces)

    def _unplace_partitions(self, values: list[Any], found: list[Any]) -> None:
        """Have partitions make their results themselves, whose shapes may be others than the plan's."""
        for step in self.program.steps:
            for index in step.outputs if step.kind == "partition" else ():
                value = self.program.values[index]
                if index < 0 or value.memory:
                    continue
                values[index] = None
                if value.kind == "output":
                    found[index] = None  # plugins between partitions are told the plan's, and check

    def physical_shape(self, frame: Frame, index: int) -> Shape | None:
        """The shape of the array in memory for a value, when it is known before the run."""
        shape, layout = frame.shapes[index], self.program.values[index].format
        return shape if shape is None or layout == "LINEAR" else tuple(packed_shape(shape, TensorFormat[layout]))

    def check_alias_size(self, frame: Frame, source: int, target: int) -> None:
        """Check that an output fills the memory of the input that it shares."""
        stored = np.broadcast_to(np.empty((), self._dtypes[source]), self.physical_shape(frame, source) or ())
        check_same_size(stored, self.physical_shape(frame, target) or (), self._dtypes[target])

    # forgetting

    def forget(self) -> None:
        """Bind everything anew from now on: memory, weights or kernels changed."""
        self.announced = None
        close_all([partial(self._drop, key) for key in self._runs])

    def _drop(self, key: Any) -> None:
        run = self._runs.pop(key)
        if run is self._latest:
            self._latest = None
        run.close()

    def replace_constant(self, blob: str, arrays: Mapping[str, Any]) -> None:
        """Use a new array for a constant, by the memory it lies in, in bodies too."""
        for index, value in enumerate(self.program.values):
            if value.blob == blob:
                self._constants[index] = arrays[value.memory]
        for body in walk_bodies(self.steps):
            body.replace_constant(blob, arrays)
        self.forget()

    def use_steps(self, steps: list[Step]) -> None:
        """Run other steps from now on; the plugin steps among them must be the ones that were there."""
        self.forget()
        self.steps = steps
        self._use_devices()

    def close(self) -> None:
        """Give memory of devices back; nothing can be run afterwards."""
        self._is_closed = True
        close_all([*(arena.close for arena in self._arenas), *(step.close for step in walk_all_steps(self.steps))])

    # devices

    def _use_devices(self) -> None:
        self._border: RunBorder | None = None
        self._schedule: Schedule | None = None
        if memories_of(self.program):
            self._border = RunBorder(self.manifest, self.program, self.steps, self.devices)
            self._schedule = Schedule(self.program, self.steps, self.devices, self.silence, self._border.places)

    def bind_border(self, frame: Frame) -> BoundBorder | None:
        """What brings inputs to devices and results back; None where everything lies on the host."""
        return None if self._border is None else self._border.bind(frame)

    def schedule_steps(self, entries: Sequence[Entry], frame: Frame) -> Sequence[Entry]:
        """The bound steps with the waits and captures that devices need."""
        return entries if self._schedule is None else self._schedule.bind(entries, frame)

    @property
    def uncaptured(self) -> list[UncapturedStep]:
        """The steps that are launched anew in every run although others are captured, with the reason."""
        return [] if self._schedule is None else self._schedule.uncaptured

    def schedule_singly(self, entries: Sequence[Entry]) -> list[list[Entry]]:
        """Each bound step with what makes it run for itself."""
        if self._schedule is None:
            return [[entry] for entry in entries]
        return self._schedule.bind_singly(entries)

    # plugins

    def all_plugin_steps(self) -> Iterator[PluginStep]:
        """The plugin steps of this program and of the bodies in it."""
        return (step for step in walk_all_steps(self.steps) if isinstance(step, PluginStep))

    def set_stream(self, stream: int) -> None:
        """Use a stream in every plugin of the host from the next run on; those of devices get their device's."""
        for step in self.all_plugin_steps():
            queue = None if step.device is None else self.devices.stream(step.device)
            step.stream = stream if step.device is None else 0 if queue is None else queue.handle

    # failures

    def fail(self, error: BaseException, *, is_loose: bool) -> NoReturn:
        """End a run that an exception ended: report it and raise it as an error that names its step."""
        self.devices.abandon()
        cause = error.error if isinstance(error, StepFailure) else error
        told = _describe(cause, error.where if isinstance(error, StepFailure) else "", is_loose=is_loose)
        if isinstance(told, DovetailError):
            self.report(told)
        if told is cause:
            raise cause.with_traceback(cause.__traceback__) from cause.__cause__
        raise told from cause


def _unusable(reason: str) -> PlanError:
    return PlanError(f"the plan cannot be bound to these inputs: {reason}", fix="build the plan again")


def _describe(error: BaseException, where: str, *, is_loose: bool) -> BaseException:
    """What a step raised, as what the caller gets: an error of ours that names the step, or the exception itself."""
    if is_loose and isinstance(error, PlanError):
        return InputError(
            "a dimension of an input is 0, and a shape that depends on it is not what the plan says",
            where=where,
            fix="pass inputs that are not empty",
        )
    if isinstance(error, InputError) and where:
        return _located(error, where)
    if isinstance(error, DovetailError) or not isinstance(error, Exception):
        return error
    if isinstance(error, MemoryError):
        return ResourceError("out of memory", where=where)
    return InputError(f"it failed: {type(error).__name__}: {error}", where=where)


def _located(error: InputError, step: str) -> InputError:
    """The error with the step it came from; a kernel knows its operator only."""
    if error.where is not None and "step" in error.where:
        return error
    where = step if error.where is None else f"{step}, {error.where}"
    return InputError(error.what, where=where, expected=error.expected, got=error.got, fix=error.fix)
