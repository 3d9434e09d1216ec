"""One program in one context: the frame of values, the views into the arena, and the steps in order."""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from dovetail.errors import DovetailError, InputError, ResourceError
from dovetail.expr import compile_expr, decode_expr, symbols_of
from dovetail.formats import packed_shape
from dovetail.plan.lifetimes import value_lifetimes
from dovetail.plan.manifest import ProgramRecord, SymbolRecord
from dovetail.provider.arena import Span, aligned_empty, plan_offsets
from dovetail.runtime.control import BodyRunner
from dovetail.runtime.plugin_step import PluginStep
from dovetail.runtime.reformat_step import ReformatStep
from dovetail.runtime.steps import Array, Frame, Step, make_segments, run_segments, share_memory
from dovetail.types import TensorFormat

__all__ = ["ProgramRunner", "StepMaker"]

StepMaker = Callable[["ProgramRunner"], list[Step]]
Shape = tuple[int, ...]

_MAX_ELEMENTS: Final = 2**47
_MAX_CACHED_SHAPES: Final = 64
"""Placements an open engine remembers; a caller with ever new shapes must not make it grow."""


class ProgramRunner:
    """Runs a program again and again; memory is made when shapes change and reused in between."""

    def __init__(self, program: ProgramRecord, constants: dict[int, Array], make_steps: StepMaker, *, is_open: bool):
        self.program = program
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
        self._arena = _Arena(program, self._plan, is_open=is_open)
        self._key: tuple[int, ...] | None = None
        self._workspace = aligned_empty(program.workspace_bytes)
        self.is_dirty = True
        """Whether the plugins must be told shapes again before the next run."""
        self.stream = 0
        self.steps = make_steps(self)
        self._segments = make_segments(self.steps)
        self.plugin_steps = [step for step in self.steps if isinstance(step, PluginStep)]
        self._readers: dict[int, list[PluginStep]] = {}
        for step in self.plugin_steps:
            for index in step.touched:
                self._readers.setdefault(index, []).append(step)
        self._shaped_steps = [step for step in self.steps if isinstance(step, PluginStep | ReformatStep)]

    # values from outside

    def bind(self, index: int, array: Array | None) -> None:
        """Put an input or output array into its slot; steps that hold its address take the new one."""
        if self.frame[index] is array:
            return
        self.frame[index] = array
        for step in self._readers.get(index, ()):
            step.is_stale = True

    def replace_constant(self, blob: str, array: Array) -> None:
        """Use a new array for a constant, in bodies too; plugins are told their addresses again."""
        for index, value in enumerate(self.program.values):
            if value.blob == blob:
                self.frame[index] = array
        for body in _bodies(self.steps):
            body.replace_constant(blob, array)
        self.is_dirty = True

    def use_steps(self, steps: list[Step]) -> None:
        """Run other steps from now on; the plugin steps among them must be the ones that were there."""
        self.steps = steps
        self._segments = make_segments(steps)
        self.is_dirty = True

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
        self._arena.place(self.frame, self.shapes, self._dtypes, key)
        self._key = key
        self.is_dirty = True
        return True

    def evaluate_dim(self, stored: Any) -> int:
        """The value of a stored expression over symbols that inputs decide."""
        expr = decode_expr(stored)
        names = sorted(symbols_of(expr))
        return compile_expr(expr, names)([self.read_symbol(name, self.frame) for name in names])

    @property
    def has_element_symbols(self) -> bool:
        """Whether shapes depend on the contents of inputs, which can change from run to run."""
        return self._plan.has_elements

    def announce_shapes(self) -> None:
        """Tell every plugin its shapes, as the contract asks before the first run and after changes."""
        for step in self._shaped_steps:
            step.set_shapes(self.frame, self.shapes)
        self._reserve_workspace()
        self.is_dirty = False

    def run(self) -> None:
        """Run all steps in order."""
        if self.is_dirty:
            self.announce_shapes()
        try:
            run_segments(self._segments, self.frame)
        except DovetailError:
            raise
        except MemoryError as error:
            raise ResourceError("out of memory", where=_failed_step(error)) from error
        except Exception as error:
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
            step.stream = stream

    def all_plugin_steps(self) -> Iterator[PluginStep]:
        """The plugin steps of this program and of the bodies in it."""
        yield from _plugin_steps(self.steps)

    @property
    def arena_bytes(self) -> int:
        """How much memory the planned values take now."""
        return self._arena.size_bytes

    def _reserve_workspace(self) -> None:
        """Give plugins their scratch memory; steps run one after the other, so they share it."""
        needed = max((step.workspace_bytes for step in self.all_plugin_steps()), default=0)
        if needed > self._workspace.nbytes:
            self._workspace = aligned_empty(needed)
        address = self._workspace.__array_interface__["data"][0]
        for step in self.all_plugin_steps():
            if step.workspace_bytes:
                step.workspace = address


def _failed_step(error: BaseException) -> str:
    """Which step was running, from the traceback: cheaper than keeping track in every run."""
    names = [frame.f_locals.get("step") for frame, _ in traceback.walk_tb(error.__traceback__)]
    return " in ".join(f"step '{step.name}'" for step in reversed(names) if hasattr(step, "name")) or "a step"


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
        self._dims: list[tuple[int, list[Callable[[Sequence[int]], int]]]] = []
        for index, value in enumerate(program.values):
            if value.dims is not None and value.kind in ("planned", "output") and _known(value.dims, set(names)):
                self._dims.append((index, [compile_expr(decode_expr(dim), names) for dim in value.dims]))
        self.placed = [index for index, _ in self._dims]
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
            if symbol.source == "dim":
                shape = shapes[symbol.value]
                values.append(shape[symbol.index] if shape is not None else 0)
            else:
                values.append(_read(symbol, frame))
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

    def evaluate(self, values: tuple[int, ...], shapes: list[Shape | None]) -> None:
        for index, dims in self._dims:
            shape = tuple(dim(values) for dim in dims)
            if min(shape, default=0) < 0:
                raise InputError("these input shapes give a tensor a negative dimension", got=shape)
            if math.prod(filter(None, shape)) > _MAX_ELEMENTS:
                raise ResourceError("these input shapes give a tensor more elements than memory can hold", got=shape)
            shapes[index] = shape


def _symbols_in_shapes(program: ProgramRecord) -> frozenset[str]:
    """What shapes that are known before the run depend on; contents of inputs that are not here need not be read."""
    shaped = [value.dims or () for value in program.values if value.kind in ("planned", "output")]
    return frozenset().union(*(symbols_of(decode_expr(dim)) for dims in shaped for dim in dims if dim is not None))


def _known(dims: Sequence[Any], names: set[str]) -> bool:
    return all(_is_known(dim, names) for dim in dims)


def _is_known(dim: Any, names: set[str]) -> bool:
    if isinstance(dim, str):
        return dim in names
    if isinstance(dim, list):
        return all(_is_known(part, names) for part in dim[1:])
    return dim is not None


class _Arena:
    """The block that planned values lie in: fixed offsets with a profile, planned per shape without one."""

    def __init__(self, program: ProgramRecord, plan: _ShapePlan, *, is_open: bool) -> None:
        self._program = program
        self._planned = [i for i in plan.placed if program.values[i].kind == "planned"]
        self._is_open = is_open
        self._memory = np.empty(0, np.uint8)
        self._spans = value_lifetimes(program)
        self._cache: dict[tuple[int, ...], tuple[list[int], int]] = {}
        if not is_open:
            self._reserve(program.arena_bytes)

    @property
    def size_bytes(self) -> int:
        return self._memory.nbytes

    def place(self, frame: Frame, shapes: list[Shape | None], dtypes: Sequence[Any], key: tuple[int, ...]) -> None:
        physical = [self._physical(i, shapes) for i in self._planned]
        sizes = [
            int(np.prod(s, dtype=np.int64)) * dtypes[i].itemsize for i, s in zip(self._planned, physical, strict=True)
        ]
        if not self._is_open:
            self._check_room(sizes)
        offsets = self._offsets(sizes, key)
        for index, shape, offset in zip(self._planned, physical, offsets, strict=True):
            alias = self._program.values[index].alias
            if alias is None:
                frame[index] = np.ndarray(shape, dtypes[index], self._memory, offset)
        self._share(frame, physical, dtypes)

    def _share(self, frame: Frame, physical: list[Shape], dtypes: Sequence[Any]) -> None:
        for index, shape in zip(self._planned, physical, strict=True):
            alias = self._program.values[index].alias
            if alias is not None and frame[alias] is not None:
                frame[index] = share_memory(frame[alias], shape, dtypes[index])

    def _check_room(self, sizes: list[int]) -> None:
        """Shapes in the profile fit; contents of shape inputs are only known now."""
        for index, size in zip(self._planned, sizes, strict=True):
            value = self._program.values[index]
            if value.size_bytes is not None and size > value.size_bytes:
                raise InputError(
                    "these inputs give a tensor a shape that the plan has no room for",
                    where=f"value '{value.name}'",
                    expected=f"at most {value.size_bytes} bytes",
                    got=size,
                    fix="stay in the profile, with the values of shape inputs too",
                )

    def _physical(self, index: int, shapes: list[Shape | None]) -> Shape:
        return tuple(packed_shape(shapes[index] or (), TensorFormat[self._program.values[index].format]))

    def _offsets(self, sizes: list[int], key: tuple[int, ...]) -> list[int]:
        if not self._is_open:
            return [self._program.values[i].offset or 0 for i in self._planned]
        if key not in self._cache:
            if len(self._cache) >= _MAX_CACHED_SHAPES:
                self._cache.clear()
            spans = [Span(n, *self._spans[i]) for i, n in zip(self._planned, sizes, strict=True)]
            self._cache[key] = plan_offsets(spans)
        offsets, total = self._cache[key]
        self._reserve(total)
        return offsets

    def _reserve(self, size_bytes: int) -> None:
        """Grow only; the start is aligned so that offsets keep their alignment."""
        if size_bytes > self._memory.nbytes:
            self._memory = aligned_empty(size_bytes)
