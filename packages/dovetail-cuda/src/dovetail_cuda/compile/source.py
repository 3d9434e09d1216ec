"""From a region to the text of a Triton kernel.

A kernel without rows has one element a lane. One with rows has a tile of rows and columns: what changes with the row
only is a column vector, what changes with the column only a row vector, and Triton stretches them. A row that does not
fit a tile is gone over in loops, once for each sum that waits for another one, and once to store.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dovetail_cuda.graph.regions import ElementRegion, Stored
from dovetail_cuda.lower.expr import (
    COLUMN,
    Apply,
    Convert,
    Expr,
    Literal,
    Load,
    Position,
    Reduced,
    Within,
    children,
    mentions,
    walk,
)
from dovetail_cuda.lower.index import Gathered, Index, Quotient, Remainder, Var
from dovetail_cuda.lower.types import compute_type, is_float, is_signed, size_of, triton_name

__all__ = ["KernelText", "Tile", "Writer", "write_kernel"]

ROW: Final = "i"
_INT32_END: Final = 2**31
_HEADER: Final = """import triton
import triton.language as tl

from dovetail_cuda.kernels import functions as f


@triton.jit
def {name}({parameters}):
"""
_REDUCTIONS: Final = {
    "sum": ("0", "tl.sum({0}, 1, keep_dims=True)", "{0} + {1}"),
    "prod": ("1", "tl.reduce({0}, 1, f.multiply, keep_dims=True)", "{0} * {1}"),
    "max": ("low", "tl.max({0}, 1, keep_dims=True)", "tl.maximum({0}, {1})"),
    "min": ("high", "tl.min({0}, 1, keep_dims=True)", "tl.minimum({0}, {1})"),
    "argmax": ("low", "tl.argmax({0}, 1, keep_dims=True)", ""),
    "argmin": ("high", "tl.argmin({0}, 1, keep_dims=True)", ""),
}
"""For each kind: what changes nothing, how a tile is reduced, and how two results become one."""


@dataclass(frozen=True, kw_only=True)
class Tile:
    """How a kernel is cut."""

    rows: int
    """Rows, or elements where there are no rows, that one program does."""
    columns: int = 1
    num_warps: int = 4


@dataclass(frozen=True, kw_only=True)
class KernelText:
    """A kernel as text, and what it is called with."""

    text: str
    name: str
    buffers: tuple[str, ...]
    """The buffer of each parameter, in order."""
    types: tuple[str, ...]
    grid: int
    num_warps: int


def write_kernel(region: ElementRegion, tile: Tile) -> KernelText:
    """The text of a region's kernel, cut in one way."""
    return Writer(region, tile).write()


class Writer:
    """Writes the lines of one kernel.

    Args:
        region: What it computes.
        tile: How it is cut.
        at_hand: Expressions that are variables of the kernel already.
        masked: The axes along which not every lane has an element, where the tile does not tell.
        first: The number of the first parameter.
    """

    def __init__(
        self,
        region: ElementRegion,
        tile: Tile,
        *,
        at_hand: Mapping[Load, str] | None = None,
        masked: frozenset[str] | None = None,
        first: int = 0,
    ) -> None:
        self._region, self._tile = region, tile
        given = at_hand or {}
        self.buffers = _list_buffers(region, given)
        """The type of each buffer that is a parameter."""
        self.names = {buffer: f"p{number}" for number, buffer in enumerate(self.buffers, first)}
        self._axes = _find_axes([stored.value for stored in region.stored])
        self._values: dict[Expr, str] = dict(given)
        self.lines: list[str] = []
        self._count = 0
        self._indent = "    "
        self._num_columns = region.rows.num_columns if region.rows else 1
        self._is_wide = _is_wide(region)
        self._masked = self._find_masked() if masked is None else masked

    def _find_masked(self) -> frozenset[str]:
        is_ragged = {
            ROW: self._region.count % self._tile.rows,
            COLUMN: self._num_columns % self._tile.columns,
        }
        return frozenset(axis for axis, left in is_ragged.items() if left)

    def write_stores(self) -> None:
        """Write what is stored, in lanes that are there."""
        for stored in self._region.stored:
            self._store(stored)

    def write(self) -> KernelText:
        name = "rows" if self._region.rows else "elements"
        self._write_lanes()
        if self._num_columns <= self._tile.columns:
            self._write_columns("0")
            self.write_stores()
        else:
            self._write_loops()
        parameters = ", ".join(self.names[buffer] for buffer in self.buffers)
        return KernelText(
            text=_HEADER.format(name=name, parameters=parameters) + "\n".join(self.lines) + "\n",
            name=name,
            buffers=tuple(self.buffers),
            types=tuple(self.buffers.values()),
            grid=-(-self._region.count // self._tile.rows),
            num_warps=self._tile.num_warps,
        )

    # lanes

    def _write_lanes(self) -> None:
        start = f"tl.program_id(0){'.to(tl.int64)' if self._is_wide else ''} * {self._tile.rows}"
        lanes = f"tl.arange(0, {self._tile.rows})" + ("[:, None]" if self._region.rows else "")
        self._line(f"{ROW} = {start} + {lanes}")
        if ROW in self._masked:
            self._line(f"{ROW}_live = {ROW} < {self._region.count}")

    def _write_columns(self, start: str) -> None:
        if self._region.rows:
            self._line(f"{COLUMN} = {start} + tl.arange(0, {self._tile.columns})[None, :]")
            if COLUMN in self._masked:
                self._line(f"{COLUMN}_live = {COLUMN} < {self._num_columns}")

    def _live(self, axes: frozenset[str]) -> list[str]:
        """The lanes along some axes that have elements, where not all have."""
        return [f"{axis}_live" for axis in (ROW, COLUMN) if axis in axes and axis in self._masked]

    # loops over rows that are longer than a tile

    def _write_loops(self) -> None:
        for level in _list_levels([stored.value for stored in self._region.stored]):
            self._write_level(level)
        for stored in self._region.stored:
            if stored.is_reduced:
                self._store(stored)
        full = [stored for stored in self._region.stored if not stored.is_reduced]
        if full:
            before = self._begin_loop()
            for stored in full:
                self._store(stored)
            self._end_loop(before)

    def _write_level(self, level: Sequence[Reduced]) -> None:
        """All sums that wait for nothing but what is there, in one loop."""
        sums: dict[Expr, str] = {}
        for expr in level:
            sums[expr] = name = self._new_name()
            identity, dtype = _identity(expr.kind, expr.arg.dtype), triton_name(compute_type(expr.dtype))
            self._line(f"{name} = tl.full([{self._tile.rows}, 1], {identity}, tl.{dtype})")
        before = self._begin_loop()
        for expr in level:
            combined = _REDUCTIONS[expr.kind][2].format(sums[expr], self._reduce_tile(expr))
            self._line(f"{sums[expr]} = {combined}")
        self._end_loop(before)
        self._values.update(sums)

    def _begin_loop(self) -> dict[Expr, str]:
        self._line(f"for start in range(0, {self._num_columns}, {self._tile.columns}):")
        self._indent += "    "
        before = dict(self._values)
        self._write_columns("start")
        return before

    def _end_loop(self, before: dict[Expr, str]) -> None:
        self._values = before
        self._indent = self._indent[4:]

    # expressions

    def _store(self, stored: Stored) -> None:
        axes = frozenset((ROW,)) if stored.is_reduced else frozenset((ROW, COLUMN))
        value, place = self._value(stored.value), self._render(stored.place)
        spread = [axis for axis in sorted(axes) if not mentions(stored.place, axis) and self._has_axis(axis)]
        place += "".join(f" + 0 * {axis}" for axis in spread)
        mask = self._live(axes)
        condition = f", mask={' & '.join(mask)}" if mask else ""
        cast = f".to(tl.{triton_name(stored.dtype)})"
        self._line(f"tl.store({self.names[stored.buffer]} + {place}, {value}{cast}{condition})")

    def _has_axis(self, axis: str) -> bool:
        return axis == ROW or self._region.rows is not None

    def _value(self, expr: Expr) -> str:
        if expr not in self._values:
            if not isinstance(expr, Reduced):
                for child in children(expr):
                    self._value(child)
            self._values[expr] = self._define(expr)
        return self._values[expr]

    def _define(self, expr: Expr) -> str:
        name = self._new_name()
        self._line(f"{name} = {self._text(expr)}")
        return name

    def _text(self, expr: Expr) -> str:
        match expr:
            case Load():
                return self._load_text(expr)
            case Literal():
                return self._full(_number(expr.value), _register(expr.dtype))
            case Position():
                if not expr.index.terms:
                    return self._full(str(expr.index.constant), _register(expr.dtype))
                return f"({self._render(expr.index)}).to({_register(expr.dtype)})"
            case Within():
                return self._within_text(expr)
            case Apply():
                return expr.text.format(*(self._values[arg] for arg in expr.args))
            case Convert():
                return _convert_text(self._values[expr.arg], expr.arg.dtype, expr.dtype)
            case Reduced():
                return self._reduce_tile(expr)

    def _load_text(self, expr: Load) -> str:
        index_axes = _index_axes(expr.index, self._axes)
        axes = self._axes[expr]
        place = self._render(expr.index) + "".join(f" + 0 * {axis}" for axis in sorted(axes - index_axes))
        mask = self._live(axes) + ([] if expr.guard is None else [self._values[expr.guard]])
        condition = f", mask={' & '.join(mask)}, other=0" if mask else ""
        widened = ".to(tl.float32)" if compute_type(expr.dtype) != expr.dtype else ""
        return f"tl.load({self.names[expr.buffer]} + {place}{condition}){widened}"

    def _within_text(self, expr: Within) -> str:
        index = self._render(expr.index)
        if not expr.index.terms:
            return self._full("False", "tl.int1")  # what holds was left out when it was made
        parts = [] if expr.low is None else [f"({index} >= {expr.low})"]
        parts += [] if expr.high is None else [f"({index} < {expr.high})"]
        return " & ".join(parts)

    def _reduce_tile(self, expr: Reduced) -> str:
        value = self._value(expr.arg)
        identity, dtype = _identity(expr.kind, expr.arg.dtype), _register(expr.arg.dtype)
        everywhere = f"({ROW} >= 0) & " if ROW not in self._axes[expr.arg] else ""
        live = " & ".join(self._live(frozenset((COLUMN,))) or [f"({COLUMN} >= 0)"])
        if everywhere or self._live(frozenset((COLUMN,))) or COLUMN not in self._axes[expr.arg]:
            value = f"tl.where({everywhere}{live}, {value}, {self._full(identity, dtype)})"
        text = _REDUCTIONS[expr.kind][1].format(value)
        return f"{text}.to({_register(expr.dtype)})"

    def _render(self, index: Index) -> str:
        parts = [self._render_term(atom, factor) for atom, factor in index.terms]
        if index.constant or not parts:
            parts.append(str(index.constant))
        return f"({' + '.join(parts)})" if len(parts) > 1 else parts[0]

    def _render_term(self, atom: Var | Gathered | Quotient | Remainder, factor: int) -> str:
        match atom:
            case Var():
                text = atom.name
            case Gathered():
                text = f"{self._values[atom.value]}.to(tl.{'int64' if self._is_wide else 'int32'})"
            case Quotient():
                text = f"({self._render(atom.of)} // {atom.by})"
            case Remainder():
                text = f"({self._render(atom.of)} % {atom.by})"
        return text if factor == 1 else f"{text} * {factor}"

    def _full(self, number: str, dtype: str) -> str:
        """A number of a type, with as many dimensions as everything else."""
        return f"tl.full([{'1, 1' if self._region.rows else '1'}], {number}, {dtype})"

    def _new_name(self) -> str:
        self._count += 1
        return f"v{self._count}"

    def _line(self, text: str) -> None:
        self.lines.append(self._indent + text)


# what a region reads and how it changes along its axes


def _list_buffers(region: ElementRegion, at_hand: Collection[Expr]) -> dict[str, str]:
    """The buffers of a kernel with their types: those it reads, then those it writes."""
    found: dict[str, str] = {}
    for stored in region.stored:
        loads = [each for each in walk(stored.value) if isinstance(each, Load) and each not in at_hand]
        found.update({each.buffer: each.dtype for each in loads})
    return {**found, **{stored.buffer: stored.dtype for stored in region.stored}}


def _find_axes(values: Sequence[Expr]) -> dict[Expr, frozenset[str]]:
    """For each expression the axes it changes along; what is reduced changes with the row at most."""
    found: dict[Expr, frozenset[str]] = {}
    for value in values:
        for expr in walk(value):
            axes = frozenset(axis for child in children(expr) for axis in found[child])
            if isinstance(expr, Load | Position | Within):
                axes |= _index_axes(expr.index, found)
            found[expr] = frozenset((ROW,)) if isinstance(expr, Reduced) else axes
    return found


def _index_axes(index: Index, found: dict[Expr, frozenset[str]]) -> frozenset[str]:
    axes = {axis for axis in (ROW, COLUMN) if mentions(index, axis)}
    for gathered in _gathered_of(index):
        axes |= found[gathered]
    return frozenset(axes)


def _gathered_of(index: Index) -> Iterator[Expr]:
    for atom, _ in index.terms:
        if isinstance(atom, Gathered):
            yield atom.value
        elif isinstance(atom, Quotient | Remainder):
            yield from _gathered_of(atom.of)


def _list_levels(values: Sequence[Expr]) -> list[list[Reduced]]:
    """Reductions by how many others they wait for."""
    depths: dict[Expr, int] = {}
    levels: dict[int, list[Reduced]] = {}
    for value in values:
        for expr in walk(value):
            if expr in depths:
                continue
            depth = max((depths[child] for child in children(expr)), default=0)
            if isinstance(expr, Reduced):
                levels.setdefault(depth, []).append(expr)
                depth += 1
            depths[expr] = depth
    return [levels[depth] for depth in sorted(levels)]


def _is_wide(region: ElementRegion) -> bool:
    """Whether some index does not fit 32 bits."""
    columns = region.rows.num_columns if region.rows else 1
    indices = [
        each.index
        for stored in region.stored
        for each in walk(stored.value)
        if isinstance(each, Load | Position | Within)
    ]
    largest = max((max(map(abs, index.bounds)) for index in indices), default=0)
    return max(largest, region.count * columns) * 2 >= _INT32_END


# numbers and types


def _register(dtype: str) -> str:
    """The type that values of a type have while they are computed with."""
    return f"tl.{triton_name(compute_type(dtype))}"


def _number(value: float) -> str:
    return repr(value) if value == value and abs(value) != float("inf") else f'float("{value}")'


def _convert_text(value: str, source: str, target: str) -> str:
    """A cast as ONNX has it: to bool by comparison, to half precision with its rounding."""
    if target == "bool":
        return f"({value} != 0)"
    register, own = _register(target), f"tl.{triton_name(target)}"
    if own == register:
        return f"{value}.to({register})"
    if source == target or (source == "bool"):
        return f"{value}.to({register})"
    return f"{value}.to({own}).to({register})"


def _identity(kind: str, dtype: str) -> str:
    name = _REDUCTIONS[kind][0]
    if name not in ("low", "high"):
        return name
    if is_float(dtype):
        return 'float("-inf")' if name == "low" else 'float("inf")'
    bits = size_of(dtype) * 8
    if dtype == "bool":
        return "0" if name == "low" else "1"
    if is_signed((dtype,)):
        return str(-(2 ** (bits - 1)) if name == "low" else 2 ** (bits - 1) - 1)
    return "0" if name == "low" else str(2**bits - 1)
