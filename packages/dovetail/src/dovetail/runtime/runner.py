"""One program in one context: the frame of values, the views into the arena, and the steps in order."""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NoReturn

import numpy as np

from dovetail.allocators import IGpuAllocator
from dovetail.errors import DovetailError, InputError, InternalError, ResourceError
from dovetail.expr import compile_expr, decode_expr, symbols_of
from dovetail.formats import packed_shape
from dovetail.plan.manifest import ProgramRecord, SymbolRecord
from dovetail.provider.arena import aligned_empty
from dovetail.runtime.arenas import make_arenas
from dovetail.runtime.control import BodyRunner
from dovetail.runtime.copy_step import CopyStep
from dovetail.runtime.device_io import DeviceIO
from dovetail.runtime.devices import ContextDevices, DeviceBlock
from dovetail.runtime.plugin_step import PluginStep
from dovetail.runtime.reformat_step import ReformatStep
from dovetail.runtime.repeat import BoundStep, bind_segments
from dovetail.runtime.schedule import Schedule, uses_devices
from dovetail.runtime.steps import Array, Frame, Segments, Step, argument_getter, make_segments, run_segments
from dovetail.runtime.subgraph_step import SubgraphStep
from dovetail.types import TensorFormat

__all__ = ["ProgramRunner", "StepMaker"]

StepMaker = Callable[["ProgramRunner"], list[Step]]
Shape = tuple[int, ...]

_MAX_ELEMENTS: Final = 2**47


class ProgramRunner:
    """Runs a program again and again; memory is made when shapes change and reused in between."""

    def __init__(
        self,
        program: ProgramRecord,
        constants: dict[int, Array],
        make_steps: StepMaker,
        *,
        is_open: bool,
        devices: ContextDevices,
        allocator: IGpuAllocator | None = None,
    ) -> None:
        self.program = program
        self.devices = devices
        """Those of the context."""
        self.frame: Frame = [None] * (len(program.values) + 1)
        for index, array in constants.items():
            self.frame[index] = array
        self.shapes: list[Shape | None] = [None] * len(program.values)
        for index, array in constants.items():
            self.shapes[index] = array.shape
        self._is_linear = [value.format == "LINEAR" for value in program.values]
        self._dtypes = [np.dtype(value.dtype) for value in program.values]
        self._symbols = {symbol.name: symbol for symbol in program.symbols}
        self._plan = _ShapePlan(program)
        self.has_element_symbols: bool = self._plan.has_elements
        """Whether shapes depend on the contents of inputs, which can change from run to run."""
        self._arenas = make_arenas(program, self._plan.placed, devices.providers, is_open=is_open, allocator=allocator)
        self._num_placements = 0
        self._key: tuple[int, ...] | None = None
        self.has_empty = False
        """Whether a dimension of an input is 0, for which steps may give other shapes than the plan says."""
        self._workspace = aligned_empty(program.workspace_bytes)
        self._workspaces: dict[str, DeviceBlock] = {}
        self.is_dirty = True
        """Whether the plugins must be told shapes again before the next run."""
        self.has_moved = False
        """Whether inputs or outputs have other addresses than in the last run, which plugins are told the same way."""
        self.stream = 0
        self.steps = make_steps(self)
        self.schedule: Schedule | None = None
        """What a run does when devices take part."""
        self.device_io: DeviceIO | None = None
        self._segments = self._make_segments()
        self.whole = self._find_whole()
        """The one step of a program that is nothing but a partition: callers may run it without the frame."""
        self.make_whole = self._bind_whole()
        self.plugin_steps = [step for step in self.steps if isinstance(step, PluginStep)]
        self._readers: dict[int, list[PluginStep]] = {}
        self._addresses: dict[int, int] = {}
        """Where values are that were bound by address."""
        for step in self.plugin_steps:
            step.known_addresses = self._addresses
            for index in step.touched:
                self._readers.setdefault(index, []).append(step)
        self._shaped_steps = [step for step in self.steps if isinstance(step, PluginStep | ReformatStep)]

    # values from outside

    def bind(self, index: int, array: Array | None) -> None:
        """Put an input or output array into its slot; steps that hold its address take the new one."""
        if self.frame[index] is array:
            return
        self.frame[index] = array
        if self._addresses:
            self._addresses.pop(index, None)
        for step in self._readers.get(index, ()):
            step.is_stale = True

    def move(self, index: int, array: Array, address: int) -> None:
        """The same for an array that is known to be at an address, so that no step looks for it."""
        self.frame[index] = array
        self._addresses[index] = address
        for step in self._readers.get(index, ()):
            step.is_stale = True

    def replace_constant(self, blob: str, arrays: Mapping[str, Any]) -> None:
        """Use a new array for a constant, by the memory it lies in, in bodies too; plugins are told addresses again."""
        for index, value in enumerate(self.program.values):
            if value.blob == blob:
                self.frame[index] = arrays[value.memory]
        for body in _bodies(self.steps):
            body.replace_constant(blob, arrays)
        self.is_dirty = True
        self.forget_captures()

    def use_steps(self, steps: list[Step]) -> None:
        """Run other steps from now on; the plugin steps among them must be the ones that were there."""
        self.steps = steps
        self.forget_captures()
        self._segments = self._make_segments()
        self.whole = self._find_whole()
        self.make_whole = self._bind_whole()
        self.is_dirty = True

    def forget_captures(self) -> None:
        """Have devices capture again what they replay."""
        if self.schedule is not None:
            self.schedule.forget_captures()

    def close(self) -> None:
        """Give memory of devices back; nothing can be run afterwards."""
        for arena in self._arenas:
            arena.close()
        for block in self._workspaces.values():
            block.close()
        for step in self.steps:
            if isinstance(step, CopyStep):
                step.close()

    def _make_segments(self) -> Segments:
        if not uses_devices(self.program):
            return make_segments(self.steps)
        self.device_io = DeviceIO(self.program, self.steps, self.bind)
        self.schedule = Schedule(
            self.program, self.steps, self.devices, begin=self.device_io, find_places=self._find_places
        )
        return self.schedule.segments

    def _find_places(self, frame: Frame) -> Any:
        """What changes whenever a planned value comes to lie elsewhere or has another shape."""
        movable = () if self.device_io is None else self.device_io.movable
        return (self._num_placements, *(frame[index].address for index in movable))

    def _find_whole(self) -> SubgraphStep | None:
        program = self.program
        only = self.steps[0] if len(self.steps) == 1 else None
        if not isinstance(only, SubgraphStep) or self.has_element_symbols or self.device_io is not None:
            return None
        record = program.steps[0]
        is_plain = not any(program.values[i].type or program.values[i].format != "LINEAR" for i in record.outputs)
        is_all = set(record.inputs).issubset(program.inputs) and record.outputs == program.outputs
        return only if is_all and is_plain else None

    def _bind_whole(self) -> Callable[[Sequence[Any]], list[Any]] | None:
        """What makes the results of such a program from its inputs, of which the partition may read some only."""
        if self.whole is None:
            return None
        make, given, read = self.whole.bind_alone(), self.program.inputs, self.program.steps[0].inputs
        if read == given:
            return make
        pick = argument_getter([given.index(index) for index in read])
        return lambda inputs: make(pick(inputs))

    def read_symbol(self, name: str, frame: Frame) -> int:
        """The value of a symbol now: from the logical shape where it is known, else from what the frame holds."""
        symbol = self._symbols[name]
        shape = self.shapes[symbol.value] if symbol.source == "dim" else None
        return _read(symbol, frame) if shape is None else shape[symbol.index]

    # shapes

    def resolve(self, input_shapes: Sequence[Shape | None]) -> bool:
        """Find all shapes that inputs decide, and place planned values; True when anything changed.

        An input that is no array has no shape.
        """
        for index, shape in zip(self.program.inputs, input_shapes, strict=True):
            self.shapes[index] = shape
        key = self._plan.symbol_values(self.shapes, self.frame)
        if key == self._key:
            return False
        self._key = None  # until all is in place: after an error the next shapes are resolved from the start
        self._plan.evaluate(key, self.shapes)
        for arena in self._arenas:
            arena.place(self.frame, self.shapes, self._dtypes, key)
        self.has_empty = self._plan.has_empty(key)
        if self.has_empty:
            self._unplace_partitions()
        self._num_placements += 1
        self._key = key
        self.is_dirty = True
        return True

    def _unplace_partitions(self) -> None:
        """Have partitions make their results themselves, whose shapes may be others than the plan's."""
        for step in self.program.steps:
            for index in step.outputs if step.kind == "subgraph" else ():
                value = self.program.values[index]
                if index < 0 or value.memory:
                    continue
                self.frame[index] = None
                if value.kind == "output":
                    self.shapes[index] = None  # plugins between partitions are told the plan's, and check

    def evaluate_dim(self, stored: Any) -> int:
        """The value of a stored expression over symbols that inputs decide."""
        expr = decode_expr(stored)
        names = sorted(symbols_of(expr))
        return compile_expr(expr, names)([self.read_symbol(name, self.frame) for name in names])

    def announce_shapes(self) -> None:
        """Tell every plugin its shapes, as the contract asks before the first run and after changes."""
        for step in self._shaped_steps:
            step.set_shapes(self.frame, self.shapes)
        for plugin_step in self.plugin_steps:
            plugin_step.is_checked = self.has_empty
        self._reserve_workspace()
        self.is_dirty = self.has_empty
        self.has_moved = False

    def announce_changes(self) -> None:
        """Tell every plugin what the contract asks for after what changed since the last run."""
        if self.is_dirty:
            self.announce_shapes()
        elif self.has_moved:
            for step in self.plugin_steps:
                step.repeat_shapes()
            self.has_moved = False

    def run(self) -> None:
        """Run all steps in order."""
        if self.is_dirty or self.has_moved:
            self.announce_changes()
        try:
            run_segments(self._segments, self.frame)
        except BaseException as error:  # noqa: BLE001 - it is raised again
            self.fail(error)

    def bind_run(self) -> BoundStep:
        """The steps over what they touch now, for runs in which nothing has changed; who calls it handles failures."""
        return bind_segments(self._segments, self.frame)

    def fail(self, error: BaseException) -> NoReturn:
        """End a run that an exception ended; what is not one of ours already is told with the step it came from."""
        self.devices.abandon()
        if self.has_empty and isinstance(error, InternalError):
            raise InputError(
                "a dimension of an input is 0, and a shape that depends on it is not what the plan says",
                where=_failed_step(error),
                fix="pass inputs that are not empty",
            ) from error
        if isinstance(error, InputError):
            raise _located(error, _failed_step(error)) from error
        if isinstance(error, DovetailError) or not isinstance(error, Exception):
            raise error
        if isinstance(error, MemoryError):
            raise ResourceError("out of memory", where=_failed_step(error)) from error
        raise InputError(f"it failed: {type(error).__name__}: {error}", where=_failed_step(error)) from error

    def physical_shape(self, index: int) -> Shape | None:
        """The shape of the array in memory for a value, when it is known before the run."""
        shape = self.shapes[index]
        if shape is None or self._is_linear[index]:
            return shape
        return tuple(packed_shape(shape, TensorFormat[self.program.values[index].format]))

    def set_stream(self, stream: int) -> None:
        """Use a stream in every plugin from the next run on."""
        self.stream = stream
        for step in self.all_plugin_steps():
            if step.provider is None:
                step.stream = stream

    def all_plugin_steps(self) -> Iterator[PluginStep]:
        """The plugin steps of this program and of the bodies in it."""
        yield from _plugin_steps(self.steps)

    @property
    def arena_bytes(self) -> int:
        """How much memory the planned values take now."""
        return sum(arena.size_bytes for arena in self._arenas)

    def _reserve_workspace(self) -> None:
        """Give plugins their scratch memory; steps run one after the other, so they share it."""
        on_host = [step for step in self.all_plugin_steps() if step.provider is None]
        needed = max((step.workspace_bytes for step in on_host), default=0)
        if needed > self._workspace.nbytes:
            self._workspace = aligned_empty(needed)
        address = self._workspace.__array_interface__["data"][0]
        for step in on_host:
            if step.workspace_bytes:
                step.workspace = address
        self._reserve_device_workspaces()

    def _reserve_device_workspaces(self) -> None:
        needed: dict[str, int] = {}
        on_devices = [step for step in self.all_plugin_steps() if step.provider is not None and step.workspace_bytes]
        for step in on_devices:
            name = step.provider.name if step.provider is not None else ""
            needed[name] = max(needed.get(name, 0), step.workspace_bytes)
        for name, size_bytes in needed.items():
            if name not in self._workspaces:
                self._workspaces[name] = DeviceBlock(self.devices.providers[name])
            if self._workspaces[name].reserve(size_bytes):
                self.forget_captures()
        for step in on_devices:
            step.workspace = self._workspaces[step.provider.name if step.provider is not None else ""].address


def _failed_step(error: BaseException) -> str:
    """Which step was running, from the traceback: cheaper than keeping track in every run."""
    names = [frame.f_locals.get("step") for frame, _ in traceback.walk_tb(error.__traceback__)]
    return " in ".join(f"step '{step.name}'" for step in reversed(names) if hasattr(step, "name")) or "a step"


def _located(error: InputError, step: str) -> InputError:
    """The error with the step it came from; a kernel knows its operator only."""
    if error.where is not None and "step" in error.where:
        return error
    where = step if error.where is None else f"{step}, {error.where}"
    return InputError(error.what, where=where, expected=error.expected, got=error.got, fix=error.fix)


def _bodies(steps: Sequence[Step]) -> Iterator[BodyRunner]:
    for step in steps:
        for body in getattr(step, "bodies", ()):
            yield body
            yield from _bodies(body.steps)


def _plugin_steps(steps: Sequence[Step]) -> Iterator[PluginStep]:
    for step in steps:
        if isinstance(step, PluginStep):
            yield step
        for body in getattr(step, "bodies", ()):
            yield from _plugin_steps(body.steps)


def _read(symbol: SymbolRecord, frame: Frame) -> int:
    array = frame[symbol.value]
    if symbol.source == "dim":
        return int(array.shape[symbol.index])
    return int(array.reshape(-1)[symbol.index])


class _ShapePlan:
    """The shapes of a program as compiled functions of its symbols."""

    def __init__(self, program: ProgramRecord) -> None:
        outside = set(program.inputs)
        used = _symbols_in_shapes(program)
        self._symbols = [s for s in program.symbols if s.value in outside and (s.source == "dim" or s.name in used)]
        names = [s.name for s in self._symbols]
        self.has_elements = any(s.source == "element" for s in self._symbols)
        self._shapes: list[list[Callable[[Sequence[int]], int]]] = []
        self._shape_of: dict[int, int] = {}
        """The number of each value's shape: few shapes occur, so each is compiled and evaluated once."""
        known, numbers = set(names), dict[Any, int]()
        for index, value in enumerate(program.values):
            if value.dims is not None and value.kind in ("planned", "output") and _known(value.dims, known):
                key = _frozen(value.dims)
                if key not in numbers:
                    numbers[key] = len(self._shapes)
                    self._shapes.append([compile_expr(decode_expr(dim), names) for dim in value.dims])
                self._shape_of[index] = numbers[key]
        self.placed = list(self._shape_of)
        self._names = {index: program.values[index].name for index in program.inputs}
        self._repeats = [
            (index, axis, names.index(dim))
            for index in program.inputs
            for axis, dim in enumerate(program.values[index].dims or ())
            if isinstance(dim, str) and dim in names
        ]

    def symbol_values(self, shapes: Sequence[Shape | None], frame: Frame) -> tuple[int, ...]:
        values = []
        for symbol in self._symbols:
            shape = shapes[symbol.value]
            try:
                if symbol.source == "dim":
                    values.append(shape[symbol.index] if shape is not None else 0)
                else:
                    values.append(_read(symbol, frame))
            except IndexError:  # the plan knows neither rank nor size of some inputs
                what = "dimension" if symbol.source == "dim" else "element"
                raise InputError(
                    f"it has no {what} {symbol.index}, which other shapes depend on",
                    where=f"input '{self._names[symbol.value]}'",
                    got=shape,
                ) from None
        for index, axis, position in self._repeats:
            shape = shapes[index]
            if shape is not None and shape[axis] != values[position]:
                raise InputError(
                    f"dimension {axis} must equal '{self._symbols[position].name}' of another input",
                    where=f"input '{self._names[index]}'",
                    expected=values[position],
                    got=shape[axis],
                )
        return tuple(values)

    def has_empty(self, values: tuple[int, ...]) -> bool:
        """Whether a dimension of an input is 0, for which sizes were not worked out: steps may give others then."""
        return 0 in values and any(
            value == 0 and symbol.source == "dim" for symbol, value in zip(self._symbols, values, strict=True)
        )

    def evaluate(self, values: tuple[int, ...], shapes: list[Shape | None]) -> None:
        is_empty = self.has_empty(values)
        evaluated = [_checked_shape([dim(values) for dim in dims], is_empty=is_empty) for dims in self._shapes]
        for index, number in self._shape_of.items():
            shapes[index] = evaluated[number]


def _checked_shape(sizes: Sequence[int], *, is_empty: bool) -> Shape:
    shape = tuple(sizes)
    if min(shape, default=0) < 0:
        if not is_empty:
            raise InputError("these input shapes give a tensor a negative dimension", got=shape)
        shape = tuple(max(size, 0) for size in shape)
    if math.prod(filter(None, shape)) > _MAX_ELEMENTS:
        raise ResourceError("these input shapes give a tensor more elements than memory can hold", got=shape)
    return shape


def _frozen(dims: Any) -> Any:
    """Stored dims as a key."""
    return tuple(map(_frozen, dims)) if isinstance(dims, list) else dims


def _symbols_in_shapes(program: ProgramRecord) -> frozenset[str]:
    """What shapes that are known before the run depend on; contents of inputs that are not here need not be read."""
    shaped = [value.dims or () for value in program.values if value.kind in ("planned", "output")]
    stored = {_frozen(dim): dim for dims in shaped for dim in dims if dim is not None}
    return frozenset().union(*(symbols_of(decode_expr(dim)) for dim in stored.values()))


def _known(dims: Sequence[Any], names: set[str]) -> bool:
    return all(_is_known(dim, names) for dim in dims)


def _is_known(dim: Any, names: set[str]) -> bool:
    if isinstance(dim, str):
        return dim in names
    if isinstance(dim, list):
        return all(_is_known(part, names) for part in dim[1:])
    return dim is not None
