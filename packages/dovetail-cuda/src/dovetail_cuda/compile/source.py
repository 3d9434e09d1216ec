"""From a region to the text of a Triton kernel.

A kernel without rows has one element a lane. One with rows has a tile of rows and columns: what changes with the row
only is a column vector, what changes with the column only a row vector, and Triton stretches them. A row that does not
fit a tile is gone over in loops, once for each sum that waits for another one, and once to store; where nothing is
summed up, tiles lie beside each other instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dovetail_cuda.compile.arguments import list_sizes
from dovetail_cuda.compile.writer import ExpressionWriter, is_wide, list_buffers, register_type
from dovetail_cuda.graph.regions import ElementRegion
from dovetail_cuda.lower.expr import COLUMN, ROW, Expr, Reduced, children, walk
from dovetail_cuda.lower.sizes import is_fixed, may_exceed
from dovetail_cuda.lower.types import is_float, is_signed, size_of

__all__ = ["KernelText", "Tile", "write_kernel"]

_HEADER: Final = """import triton
import triton.language as tl

from dovetail_cuda.kernels import functions as f


@triton.jit
def {name}({parameters}, EARLY: tl.constexpr):
    f.begin(EARLY)
"""
_REDUCTIONS: Final = {
    "sum": ("0", "tl.sum({0}, 1, keep_dims=True)", "{0} + {1}"),
    "prod": ("1", "tl.reduce({0}, 1, f.multiply, keep_dims=True)", "{0} * {1}"),
    "max": ("low", "tl.max({0}, 1, keep_dims=True)", "tl.maximum({0}, {1})"),
    "min": ("high", "tl.min({0}, 1, keep_dims=True)", "tl.minimum({0}, {1})"),
    "argmax": ("low", "tl.argmax({0}, 1, keep_dims=True)", "tl.max({0}, 1, return_indices=True, keep_dims=True)"),
    "argmin": ("high", "tl.argmin({0}, 1, keep_dims=True)", "tl.min({0}, 1, return_indices=True, keep_dims=True)"),
}
"""For each kind: what changes nothing, how a tile is reduced, and how two results become one; of a place, how a tile
gives the element with it."""
_WORD: Final = 4
_BETTER: Final = {"argmax": ">", "argmin": "<"}


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
    parameters: tuple[str, ...]
    buffers: tuple[str, ...]
    """The buffer of each parameter, in order."""
    types: tuple[str, ...]
    grid: tuple[int, int, int]
    num_warps: int
    num_stages: int = 3
    starts_early: bool = True
    """Whether it may be launched before the kernel in front of it has ended."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes that vary with shapes, which it is called with after its buffers."""
        return tuple(list_sizes(self.text))


def write_kernel(region: ElementRegion, tile: Tile) -> KernelText:
    """The text of a region's kernel, cut in one way."""
    return _ElementWriter(region, tile).write_kernel()


class _ElementWriter(ExpressionWriter):
    def __init__(self, region: ElementRegion, tile: Tile) -> None:
        self._region, self._tile = region, tile
        self._buffers = list_buffers(region.stored)
        self._num_columns = region.rows.num_columns if region.rows else 1
        sizes = {ROW: (region.count, tile.rows), COLUMN: (self._num_columns, tile.columns)}
        super().__init__(
            [root for stored in region.stored for root in stored.roots],
            {buffer: f"p{number}" for number, buffer in enumerate(self._buffers)},
            has_columns=region.rows is not None,
            partial=frozenset(axis for axis, (size, part) in sizes.items() if size % part),
            uses_int64=is_wide(region.stored, region.count * self._num_columns),
        )

    def write_kernel(self) -> KernelText:
        """The kernel as text."""
        name = "rows" if self._region.rows else "elements"
        self._write_lanes()
        is_one = not may_exceed(self._num_columns, self._tile.columns)
        if is_one or not self._region.has_sums:
            self._write_columns("0" if is_one else f"tl.program_id(1) * {self._tile.columns}")
            for stored in self._region.stored:
                self.store(stored)
        else:
            self._write_loops()
        parameters = tuple(self._names[buffer] for buffer in self._buffers)
        return KernelText(
            text=_HEADER.format(name=name, parameters=", ".join(parameters)) + "\n".join(self.lines) + "\n",
            name=name,
            parameters=parameters,
            buffers=tuple(self._buffers),
            types=tuple(self._buffers.values()),
            grid=(-(-self._region.count // self._tile.rows), self._count_column_tiles(), 1),
            num_warps=self._tile.num_warps,
        )

    def _count_column_tiles(self) -> int:
        """Programs beside each other in one row: one where sums are over the row, which go over it in loops."""
        return 1 if self._region.has_sums or not self._region.rows else -(-self._num_columns // self._tile.columns)

    # lanes

    def _write_lanes(self) -> None:
        start = f"tl.program_id(0){'.to(tl.int64)' if self._uses_int64 else ''} * {self._tile.rows}"
        lanes = f"tl.arange(0, {self._tile.rows})" + ("[:, None]" if self._region.rows else "")
        self.line(f"{ROW} = {start} + {lanes}")
        if self._region.count % self._tile.rows:
            self.line(f"{ROW}_live = {ROW} < {self._region.count}")

    def _write_columns(self, start: str) -> None:
        if self._region.rows:
            lanes = f"tl.arange(0, {self._tile.columns}){'.to(tl.int64)' if self._uses_int64 else ''}"
            self.line(f"{COLUMN} = {start} + {lanes}[None, :]")
            if self._num_columns % self._tile.columns:
                self.line(f"{COLUMN}_live = {COLUMN} < {self._num_columns}")

    # loops over rows that are longer than a tile

    def _write_loops(self) -> None:
        for level in _list_levels([root for stored in self._region.stored for root in stored.roots]):
            self._write_level(level)
        for stored in self._region.stored:
            if stored.is_reduced:
                self.store(stored)
        full = [stored for stored in self._region.stored if not stored.is_reduced]
        if full:
            before = self._begin_loop()
            for stored in full:
                self.store(stored)
            self._end_loop(before)

    def _write_level(self, level: Sequence[Reduced]) -> None:
        """All sums that wait for nothing but what is there, in one loop."""
        sums: dict[Expr, str] = {expr: self._new_name() for expr in level}
        for expr in level:
            self._write_start(expr, sums[expr])
        before = self._begin_loop()
        for expr in level:
            if expr.kind in _BETTER:
                self._combine_place(expr, sums[expr])
            else:
                combined = _REDUCTIONS[expr.kind][2].format(sums[expr], self._reduce(expr))
                self.line(f"{sums[expr]} = {combined}")
        self._end_loop(before)
        self._values.update(sums)

    def _write_start(self, expr: Reduced, name: str) -> None:
        """What a loop begins with."""
        identity, shape = _identity(expr.kind, expr.arg.dtype), f"[{self._tile.rows}, 1]"
        if expr.kind in _BETTER:
            self.line(f"{name}_best = tl.full({shape}, {identity}, {_extreme_type(expr.arg.dtype)})")
            identity = "0"
        self.line(f"{name} = tl.full({shape}, {identity}, {register_type(expr.dtype)})")

    def _combine_place(self, expr: Reduced, name: str) -> None:
        """The place of the tile's best in the row, where it is better than what was before."""
        best, place = self._new_name(), self._new_name()
        self.line(f"{best}, {place} = {_REDUCTIONS[expr.kind][2].format(self._mask(expr))}")
        is_better = f"{best} {_BETTER[expr.kind]} {name}_best"
        self.line(f"{name} = tl.where({is_better}, (start + {place}).to({register_type(expr.dtype)}), {name})")
        self.line(f"{name}_best = tl.where({is_better}, {best}, {name}_best).to({_extreme_type(expr.arg.dtype)})")

    def _begin_loop(self) -> dict[Expr, str]:
        columns = self._tile.columns
        is_long = self._uses_int64 and is_fixed(self._num_columns)
        # Triton compares 32 bits with their sign, whatever is counted: a longer row is counted in tiles.
        if is_long:
            self.line(f"for part in range({-(-self._num_columns // columns)}):")
            self.line(f"    start = part * tl.full([1, 1], {columns}, tl.int64)")
        else:
            self.line(f"for start in range(0, {self._num_columns}, {columns}):")
        self._indent += "    "
        before = dict(self._values)
        self._write_columns("start")
        return before

    def _end_loop(self, before: dict[Expr, str]) -> None:
        self._values = before
        self._indent = self._indent[4:]

    def _reduce(self, expr: Reduced) -> str:
        return f"{_REDUCTIONS[expr.kind][1].format(self._mask(expr))}.to({register_type(expr.dtype)})"

    def _mask(self, expr: Reduced) -> str:
        """The elements of the tile, with what changes nothing where there are none."""
        value = self._value(expr.arg)
        identity, dtype = _identity(expr.kind, expr.arg.dtype), register_type(expr.arg.dtype)
        everywhere = f"({ROW} >= 0) & " if ROW not in self._axes[expr.arg] else ""
        live = " & ".join(self._live(frozenset((COLUMN,))) or [f"({COLUMN} >= 0)"])
        if everywhere or self._live(frozenset((COLUMN,))) or COLUMN not in self._axes[expr.arg]:
            return f"tl.where({everywhere}{live}, {value}, {self._full(identity, dtype)})"
        return value


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


def _extreme_type(dtype: str) -> str:
    """The type in which Triton finds the largest of a type: none is narrower than 32 bits."""
    if is_float(dtype) or size_of(dtype) >= _WORD:
        return register_type(dtype)
    return "tl.int32" if dtype == "bool" or is_signed((dtype,)) else "tl.uint32"


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
