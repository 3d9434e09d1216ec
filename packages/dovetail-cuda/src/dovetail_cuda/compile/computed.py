"""From a product with a computed factor to the text of a Triton kernel: its tiles are computed as they are used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dovetail_cuda.compile.source import KernelText
from dovetail_cuda.compile.writer import ACCUMULATOR, ExpressionWriter, is_wide
from dovetail_cuda.graph.computed import INNER, ComputedRegion
from dovetail_cuda.graph.regions import Stored
from dovetail_cuda.lower.expr import COLUMN, ROW, Expr
from dovetail_cuda.lower.types import triton_name

__all__ = ["ComputedTile", "write_computed"]

_HEADER: Final = """import triton
import triton.language as tl

from dovetail_cuda.kernels import functions as f


@triton.jit
def computed({parameters}, EARLY: tl.constexpr):
    f.begin(EARLY)
"""


@dataclass(frozen=True, kw_only=True)
class ComputedTile:
    """How the product is cut."""

    m: int
    n: int
    k: int
    num_warps: int
    num_stages: int

    @property
    def name(self) -> str:
        """What plans and timing caches call it."""
        return f"computed {self.m}x{self.n}x{self.k} w{self.num_warps} s{self.num_stages}"


def write_computed(region: ComputedRegion, tile: ComputedTile, *, precision: str) -> KernelText:
    """The text of a region's kernel, cut in one way; its parameters are in the order of the region's operands."""
    return _ComputedText(region, tile, precision).write()


class _ComputedText:
    def __init__(self, region: ComputedRegion, tile: ComputedTile, precision: str) -> None:
        self._region, self._tile, self._precision = region, tile, precision
        self._names = {buffer: f"p{number}" for number, buffer in enumerate(region.operands)}
        sizes = {ROW: (region.m, tile.m), COLUMN: (region.n, tile.n), INNER: (region.k, tile.k)}
        self._partial = frozenset(axis for axis, (size, part) in sizes.items() if size % part)
        self._tiles = (-(-region.m // tile.m), -(-region.n // tile.n))
        stored = Stored(buffer="", dtype=region.dtype, value=region.right, place=region.left.index)
        self._uses_int64 = is_wide([stored, region.stored], region.m * region.n)

    def write(self) -> KernelText:
        region, tile = self._region, self._tile
        wide = ".to(tl.int64)" if self._uses_int64 else ""
        lines = [
            f"{ROW} = (tl.program_id(0) // {self._tiles[1]}){wide} * {tile.m} + tl.arange(0, {tile.m})[:, None]",
            f"{COLUMN} = (tl.program_id(0) % {self._tiles[1]}){wide} * {tile.n} + tl.arange(0, {tile.n})[None, :]",
            f"{ROW}_live = {ROW} < {region.m}",
            f"{COLUMN}_live = {COLUMN} < {region.n}",
            f"{ACCUMULATOR} = tl.zeros([{tile.m}, {tile.n}], tl.float32)",
            f"for start in range(0, {region.k}, {tile.k}):",
            *(f"    {line}" for line in self._write_step()),
            *self._write_result(),
        ]
        body = "".join(f"    {line}\n" for line in lines)
        return KernelText(
            text=_HEADER.format(parameters=", ".join(self._names.values())) + body,
            name="computed",
            parameters=tuple(self._names.values()),
            buffers=tuple(self._names),
            types=tuple(region.operands.values()),
            grid=(self._tiles[0] * self._tiles[1], 1, 1),
            num_warps=tile.num_warps,
            num_stages=tile.num_stages,
        )

    def _write_step(self) -> list[str]:
        region, tile = self._region, self._tile
        lines = []
        for name, side in (("across", "[None, :]"), ("down", "[:, None]")):
            lines.append(f"{name} = start + tl.arange(0, {tile.k}){side}")
            lines.append(f"{name}_live = {name} < {region.k}")
        left = self._make_writer(region.left, {INNER: "across"})
        text = left.write_load(region.left, frozenset((ROW, INNER)))
        lines += [*_strip(left), f"a = {text}"]
        right = self._make_writer(region.right, {INNER: "down"})
        text = f"{right.write(region.right)} + (0 * down + 0 * {COLUMN}).to(tl.float32)"
        if INNER in self._partial:  # what is behind the end is multiplied with zeros, and may not be NaN
            text = f"tl.where(down_live, {text}, 0.0)"
        lines += [*_strip(right), f"b = ({text}).to(tl.{triton_name(region.dtype)})"]
        return [*lines, f'{ACCUMULATOR} = tl.dot(a, b, {ACCUMULATOR}, input_precision="{self._precision}")']

    def _write_result(self) -> list[str]:
        writer = self._make_writer(self._region.stored.value, {})
        writer.store(self._region.stored)
        return _strip(writer)

    def _make_writer(self, expr: Expr, lanes: Mapping[str, str]) -> ExpressionWriter:
        return ExpressionWriter(
            [expr], self._names, has_columns=True, partial=self._partial, uses_int64=self._uses_int64, lanes=lanes
        )


def _strip(writer: ExpressionWriter) -> list[str]:
    return [line.strip() for line in writer.lines]
