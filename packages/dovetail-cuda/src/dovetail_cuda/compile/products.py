"""From a product region to the text of a Triton kernel: the product in tiles, and what follows on each tile.

Where there are few tiles, what is summed may be split among programs: each writes its part to memory, and the last to
come adds all parts up in their order, so that a result is the same in every run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dovetail_cuda.compile.source import KernelText
from dovetail_cuda.compile.writer import ACCUMULATOR, ExpressionWriter, is_wide, list_buffers
from dovetail_cuda.graph.regions import ProductRegion, Stored
from dovetail_cuda.lower.expr import BATCH, COLUMN, ROW, Load, children, walk
from dovetail_cuda.lower.matrices import Matrix
from dovetail_cuda.lower.sizes import divide, greatest, is_fixed, may_exceed
from dovetail_cuda.lower.types import size_of

__all__ = [
    "LOCKS",
    "PARTS",
    "ProductText",
    "ProductTile",
    "find_strides",
    "list_epilogue",
    "write_epilogue",
    "write_product",
]

PARTS: Final = "parts"
LOCKS: Final = "locks"
"""The roles of what splitting needs: the parts of sums, and how many of them are there."""
_EARLY_ELEMENTS: Final = 64 * 64
"""Tiles up to this have registers for what follows reads while they are summed."""
_LINE_BYTES: Final = 128
"""What the cache reads at once."""
_HEADER: Final = """import triton
import triton.language as tl

from dovetail_cuda.kernels import functions as f
from dovetail_cuda.kernels import gemm as g


@triton.jit
def product({parameters}, EARLY: tl.constexpr):
    f.let_next_start(EARLY)
"""


@dataclass(frozen=True, kw_only=True)
class ProductTile:
    """How a product is cut."""

    m: int
    n: int
    k: int
    num_warps: int
    num_stages: int
    split: int = 1
    """Among how many programs the sum of an element is split."""
    group: int = 8
    """Rows of tiles that run together."""
    prefetches: bool = False
    """Whether a weight on the right is read into the cache before the kernel in front has ended."""

    @property
    def name(self) -> str:
        """What plans and timing caches call it."""
        split = f" split {self.split}" if self.split > 1 else ""
        return f"tile {self.m}x{self.n}x{self.k} w{self.num_warps} s{self.num_stages}{split}"


def list_epilogue(stored: Stored) -> dict[str, tuple[str, str]]:
    """The buffers of what follows by role, ``e0`` and so on for what is read, each with its type."""
    *read, (result, dtype) = list_buffers([stored]).items()
    roles = {f"e{number}": each for number, each in enumerate(read)}
    return {**roles, "result": (result, dtype)}


def write_epilogue(stored: Stored, partial: frozenset[str], *, uses_int64: bool) -> list[str]:
    """The lines that store what follows, over the variables of row, column and batch, with parameters by role."""
    writer = _open_writer(stored, partial, uses_int64=uses_int64)
    writer.store(stored)
    return writer.lines


def _open_writer(stored: Stored, partial: frozenset[str], *, uses_int64: bool) -> ExpressionWriter:
    names = {buffer: role for role, (buffer, _) in list_epilogue(stored).items()}
    return ExpressionWriter([stored.value], names, has_columns=True, partial=partial, uses_int64=uses_int64)


def write_product(region: ProductRegion, tile: ProductTile, *, allows_tf32: bool) -> KernelText:
    """The text of a product's kernel, cut in one way; its buffers are roles."""
    return ProductText(region, tile, "tf32" if allows_tf32 else "ieee").write()


class ProductText:
    """The kernel of a product in tiles, line by line."""

    def __init__(self, region: ProductRegion, tile: ProductTile, precision: str) -> None:
        self._region, self._tile, self._precision = region, tile, precision
        sizes = {ROW: (region.m, tile.m), COLUMN: (region.n, tile.n)}
        self._partial = frozenset(axis for axis, (size, part) in sizes.items() if size % part)
        self._tiles = (-(-region.m // tile.m), -(-region.n // tile.n))
        self._uses_int64 = is_wide([region.stored], _count_largest(region))
        self._writer = _open_writer(region.stored, self._partial, uses_int64=self._uses_int64)

    def write(self) -> KernelText:
        """The whole text."""
        roles = {"left": self._region.dtype, "right": self._region.dtype}
        roles |= {role: dtype for role, (_, dtype) in list_epilogue(self._region.stored).items()}
        if self._tile.split > 1:
            roles |= {PARTS: "float32", LOCKS: "int32"}
        lines = [*self._write_lanes(), *self._write_prefetch(), "f.wait(EARLY)", *self._write_loads()]
        lines += [*self._write_sum(), *self._write_split()]
        indent = "    " if self._tile.split > 1 else ""
        lines += [indent + line for line in self._write_follower()]
        text = _HEADER.format(parameters=", ".join(roles)) + "".join(f"    {line}\n" for line in lines)
        return KernelText(
            text=text,
            name="product",
            parameters=tuple(roles),
            buffers=tuple(roles),
            types=tuple(roles.values()),
            grid=(self._tiles[0] * self._tiles[1], self._region.batch, self._tile.split),
            num_warps=self._tile.num_warps,
            num_stages=self._tile.num_stages,
        )

    def _write_lanes(self) -> list[str]:
        tile, wide = self._tile, ".to(tl.int64)" if self._uses_int64 else ""
        down, across = self._tiles
        lines = [
            f"m, n = g.find_tile(tl.program_id(0), {down}, {across}, {tile.group if may_exceed(down, 1) else 1})",
            f"{ROW} = m{wide} * {tile.m} + tl.arange(0, {tile.m})[:, None]",
            f"{COLUMN} = n{wide} * {tile.n} + tl.arange(0, {tile.n})[None, :]",
        ]
        if may_exceed(self._region.batch, 1):
            lines.append(f"{BATCH} = tl.program_id(1){wide}")
        ends = {ROW: self._region.m, COLUMN: self._region.n}
        return [*lines, *(f"{axis}_live = {axis} < {ends[axis]}" for axis in sorted(self._partial))]

    def _write_prefetch(self) -> list[str]:
        """Before anything is waited for, have the cache read what a weight on the right has for this tile."""
        region, tile, first = self._region, self._tile, self._first
        if not tile.prefetches:
            return []
        line = _LINE_BYTES // size_of(region.dtype)
        sizes = (region.n, region.k // tile.split, *find_strides(region.right), self._tiles[0], tile.n, line, "EARLY")
        given = ", ".join(str(each) for each in sizes)
        return [f"g.prefetch_right({self._locate(('right', region.right))}, n * {tile.n}, {first}, m, {given})"]

    @property
    def _first(self) -> str:
        """Where this program begins to sum."""
        return f"tl.program_id(2) * {self._region.k // self._tile.split}" if self._tile.split > 1 else "0"

    def _write_sum(self) -> list[str]:
        region, tile, first = self._region, self._tile, self._first
        count = region.k // tile.split
        operands = ", ".join(self._locate(each) for each in (("left", region.left), ("right", region.right)))
        strides = (*find_strides(region.left), *find_strides(region.right))
        sizes = (region.m, region.n, count, *strides, f'"{self._precision}"', tile.m, tile.n, tile.k)
        function, even = "multiply", list[bool]()
        if not all(is_fixed(size) for size in (*sizes[:3], *strides)):
            parts = ((region.m, tile.m), (region.n, tile.n), (count, tile.k))
            function, even = "multiply_any", [divide(size, part) is not None for size, part in parts]
        given = ", ".join(str(each) for each in (*sizes, *even))
        return [f"{ACCUMULATOR} = g.{function}({operands}, {ROW}, {COLUMN}, {first}, {given})"]

    def _locate(self, operand: tuple[str, Matrix]) -> str:
        role, matrix = operand
        return f"{role} + {BATCH} * {matrix.batch_stride}" if matrix.batch_stride else role

    def _write_split(self) -> list[str]:
        """Store this part of the sum; the last to do so has the whole."""
        if self._tile.split == 1:
            return []
        region, tile, (down, across) = self._region, self._tile, self._tiles
        size = region.batch * region.m * region.n
        live = " & ".join(f"{axis}_live" for axis in sorted(self._partial)) or f"({ROW} >= 0) & ({COLUMN} >= 0)"
        number = f"tl.program_id(1) * {down * across} + tl.program_id(0)"
        matrix = f"{BATCH} * {region.m * region.n} + " if region.batch > 1 else ""
        return [
            f"place = {matrix}{ROW} * {region.n} + {COLUMN}",
            f"live = {live}",
            f'tl.store({PARTS} + tl.program_id(2) * {size} + place, {ACCUMULATOR}, mask=live, cache_modifier=".cg")',
            "tl.debug_barrier()",
            f'before = tl.atomic_add({LOCKS} + {number}, 1, sem="acq_rel")',
            f"if before == {tile.split - 1}:",
            f"    {ACCUMULATOR} = g.add_up({PARTS}, place, live, {size}, {tile.split}, {tile.m}, {tile.n})",
            f"    tl.store({LOCKS} + {number}, 0)",
        ]

    def _write_loads(self) -> list[str]:
        """Begin to load what follows reads, where the registers for it are free: it comes while the sum is made."""
        if self._tile.m * self._tile.n <= _EARLY_ELEMENTS:
            for each in walk(self._region.stored.value):
                if isinstance(each, Load) and not list(children(each)):
                    self._writer.load_early(each)
        return self._take_lines()

    def _write_follower(self) -> list[str]:
        self._writer.store(self._region.stored)
        return self._take_lines()

    def _take_lines(self) -> list[str]:
        """What was written since the last time."""
        lines, self._writer.lines = self._writer.lines, []
        return [line.removeprefix("    ") for line in lines]


def find_strides(matrix: Matrix) -> tuple[int, int]:
    """From one row to the next and from one column to the next, of a matrix that may lie the other way round."""
    return (1, matrix.line) if matrix.is_swapped else (matrix.line, 1)


def _count_largest(region: ProductRegion) -> int:
    """The most elements from the first to the last of an operand, or of the parts of the sums."""
    m, n, k = (greatest(size) for size in (region.m, region.n, region.k))
    left = region.left.batch_stride * region.batch + region.left.line * max(m, k)
    right = region.right.batch_stride * region.batch + region.right.line * max(n, k)
    return max(greatest(size) for size in (left, right, region.batch * region.m * region.n))
