"""From an attention region to the text of a Triton kernel that computes it in one pass over the keys.

A program has a tile of queries and goes over the keys in blocks: it keeps the largest score of each query so far, the
sum of powers relative to that, and the values mixed by these powers, and corrects the two when a larger score comes.
What masks scores is part of the kernel as any other expression. Blocks of keys that no query of the tile may see are
not visited, and only those at an end are compared with it. Where the keys are split over several programs, each
stores what it has, and a second kernel joins them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from dovetail_cuda.compile.source import KernelText
from dovetail_cuda.compile.writer import ACCUMULATOR, ExpressionWriter
from dovetail_cuda.graph.attention import AttentionRegion
from dovetail_cuda.lower.expr import BATCH, COLUMN, ROW, Expr, Load, Position, Within, walk
from dovetail_cuda.lower.sizes import greatest, least, may_exceed
from dovetail_cuda.lower.types import triton_name

__all__ = ["PARTS", "AttentionTile", "write_attention"]

PARTS: Final = ("mixed", "tops", "sums")
"""The buffers, of float32, that programs which share keys store what they have in."""
_LOG2E: Final = math.log2(math.e)
_INT32_END: Final = 2**31
_NO_SCORE: Final = "-1e30"
"""Stands for the largest score of a part that saw no key: finite, so that a difference of two is a number."""
_HEADER: Final = """import triton
import triton.language as tl

from dovetail_cuda.kernels import functions as f


@triton.jit
def attention({parameters}, EARLY: tl.constexpr):
    f.begin(EARLY)
"""


@dataclass(frozen=True, kw_only=True)
class AttentionTile:
    """How the kernel is cut."""

    queries: int
    keys: int
    num_warps: int
    num_stages: int = 2
    num_parts: int = 1
    """Programs that share the keys of a tile of queries."""

    @property
    def name(self) -> str:
        """What plans and timing caches call it."""
        parts = f" p{self.num_parts}" if self.num_parts > 1 else ""
        return f"attention {self.queries}x{self.keys} w{self.num_warps} s{self.num_stages}{parts}"


def write_attention(region: AttentionRegion, tile: AttentionTile, precision: str = "ieee") -> KernelText:
    """The text of a region's kernel, cut in one way; the precision is that of products of float32."""
    return _AttentionText(region, tile, precision).write()


class _AttentionText:
    def __init__(self, region: AttentionRegion, tile: AttentionTile, precision: str) -> None:
        self._region, self._tile, self._precision = region, tile, precision
        self._buffers = _list_buffers(region, is_split=tile.num_parts > 1)
        self._names = {buffer: f"p{number}" for number, buffer in enumerate(self._buffers)}
        self._lines: list[str] = []
        self._indent = "    "
        self._num_tiles = -(-region.queries // tile.queries)
        self._part_keys = -(-region.keys // tile.num_parts)
        self._features, self._columns = (max(_power_above(n), 16) for n in (region.features, region.columns))
        self._uses_int64 = _is_wide(region)
        self._partial = frozenset((ROW,)) if region.queries % tile.queries else frozenset[str]()

    def write(self) -> KernelText:
        self._write_lanes()
        self._write_operand("q", self._region.query, {"d": "dq"}, partial=self._partial)
        rows = f"[{self._tile.queries}, 1]"
        self._line(f'top = tl.full({rows}, float("-inf"), tl.float32)')
        self._line(f"sums = tl.zeros({rows}, tl.float32)")
        self._line(f"mixed = tl.zeros([{self._tile.queries}, {self._columns}], tl.float32)")
        self._write_blocks()
        if self._tile.num_parts > 1:
            self._store_parts()
        else:
            self._store_result()
        return KernelText(
            text=_HEADER.format(parameters=", ".join(self._names.values())) + "\n".join(self._lines) + "\n",
            name="attention",
            parameters=tuple(self._names.values()),
            buffers=tuple(self._buffers),
            types=tuple(self._buffers.values()),
            grid=(self._num_tiles * self._region.batch * self._tile.num_parts, 1, 1),
            num_warps=self._tile.num_warps,
            num_stages=self._tile.num_stages,
        )

    # lanes

    def _write_lanes(self) -> None:
        region, tile, parts = self._region, self._tile, self._tile.num_parts
        wide = ".to(tl.int64)" if self._uses_int64 else ""
        self._line("number = tl.program_id(0)")
        if parts > 1:
            self._line(f"part = number % {parts}")
            self._line(f"number = number // {parts}")
        if region.causal is None:
            self._line(f"first = number % {self._num_tiles} * {tile.queries}")
            self._line(f"{BATCH} = (number // {self._num_tiles}){wide}")
        else:  # queries that see the most keys take longest, and begin first
            self._line(f"first = ({self._num_tiles - 1} - number // {region.batch}) * {tile.queries}")
            self._line(f"{BATCH} = (number % {region.batch}){wide}")
        self._line(f"{ROW} = first + tl.arange(0, {tile.queries})[:, None]")
        self._line(f"{ROW}_live = {ROW} < {region.queries}")
        for name, side in (("dq", "[None, :]"), ("dk", "[:, None]"), ("dv", "[None, :]")):
            size, end = (self._columns, region.columns) if name == "dv" else (self._features, region.features)
            self._line(f"{name} = tl.arange(0, {size}){side}")
            self._line(f"{name}_live = {name} < {end}")

    # blocks of keys

    def _write_blocks(self) -> None:
        """Those that every query sees whole, and then those at an end."""
        region, tile = self._region, self._tile
        begin, count = "0", region.keys
        if tile.num_parts > 1:
            begin, count = "begin", self._part_keys
            self._line(f"begin = part * {count}")
        is_even = region.keys == count * tile.num_parts
        end = f"{begin} + {count}" if is_even else f"tl.minimum({begin} + {count}, {region.keys})"
        if region.causal is not None:
            end = f"tl.minimum({end}, first + {tile.queries + region.causal})"
        self._line(f"end = {end}")
        if not may_exceed(count, tile.keys):
            self._line(f"start = {begin}")
            is_short = count != tile.keys
            self._write_block(is_last=not is_even or region.causal is not None or is_short, is_only=True)
            return
        seen = "end" if region.causal is None else f"tl.minimum(end, first + {region.causal + 1})"
        self._line(f"last = {begin} + tl.maximum({seen} - {begin}, 0) // {tile.keys} * {tile.keys}")
        self._loop(begin, "last", is_last=False)
        if not is_even or region.causal is not None or count % tile.keys:
            self._loop("last", "end", is_last=True)

    def _loop(self, begin: str, end: str, *, is_last: bool) -> None:
        self._line(f"for start in range({begin}, {end}, {self._tile.keys}):")
        self._indent += "    "
        self._write_block(is_last=is_last)
        self._indent = self._indent[4:]

    def _write_block(self, *, is_last: bool, is_only: bool = False) -> None:
        """Take a block of keys in; at an end not all of them are seen."""
        region, dot = self._region, f'input_precision="{self._precision}"'
        partial = frozenset((COLUMN,)) if is_last else frozenset[str]()
        for name, side in ((COLUMN, "[None, :]"), ("jv", "[:, None]")):
            self._line(f"{name} = start + tl.arange(0, {self._tile.keys}){side}")
            self._line(f"{name}_live = {name} < end")
        self._write_operand("k", region.key, {"d": "dk"}, partial=partial)
        if is_only:  # what is asked for early is there when it is needed; in loops the compiler sees to that
            self._write_operand("v", region.value, {COLUMN: "jv", "d": "dv"}, partial=partial)
        self._line(f"scores = tl.dot(q, k, {dot})")
        factor = self._write_scores(partial, is_last=is_last)
        highest = "tl.max(scores, 1, keep_dims=True)"
        self._line(f"higher = {highest if is_only else f'tl.maximum(top, {highest})'}")
        self._line("base = higher")
        if self._may_be_blind:  # of a query that sees nothing yet, nothing is taken out
            self._line('base = tl.where(higher == float("-inf"), 0.0, higher)')
        self._line(f"powers = tl.exp2(scores * {factor!r} - base * {factor!r})")
        if is_only:
            self._line("sums = tl.sum(powers, 1, keep_dims=True)")
            self._line(f"mixed = tl.dot(powers.to(v.dtype), v, {dot})")
        else:
            self._write_operand("v", region.value, {COLUMN: "jv", "d": "dv"}, partial=partial)
            self._line(f"smaller = tl.exp2((top - base) * {factor!r})")
            self._line("sums = sums * smaller + tl.sum(powers, 1, keep_dims=True)")
            self._line(f"mixed = tl.dot(powers.to(v.dtype), v, mixed * smaller, {dot})")
        self._line("top = higher")

    @property
    def _may_be_blind(self) -> bool:
        """Whether a query may see no key of the first block: by a mask, or because the block is of another part."""
        return self._region.score is not None or self._tile.num_parts > 1

    def _write_scores(self, partial: frozenset[str], *, is_last: bool) -> float:
        """Mask scores; tells what they are still to be multiplied with, for powers of two."""
        region, factor = self._region, self._region.scale * _LOG2E
        if region.score is not None:
            self._line(f"{ACCUMULATOR} = scores * {region.scale!r}")
            writer = self._make_writer(region.score, partial | self._partial)
            self._line(f"scores = {self._take(writer, writer.write(region.score))}")
            factor = _LOG2E
        if is_last:
            seen = [f"{COLUMN}_live"]
            if region.causal is not None:
                seen.append(f"({COLUMN} <= {ROW} + {region.causal})")
            self._line(f'scores = tl.where({" & ".join(seen)}, scores, float("-inf"))')
        return factor

    # results

    def _store_result(self) -> None:
        """Store what follows, over a row for each query and a column for each feature."""
        region = self._region
        self._line(f"{ACCUMULATOR} = mixed / sums")
        if region.zeroes_blind and region.score is not None:
            self._line(f"{ACCUMULATOR} = tl.where(sums == 0, 0.0, {ACCUMULATOR})")
        stored = region.stored
        partial = self._partial | (frozenset((COLUMN,)) if region.columns < self._columns else frozenset())
        writer = self._make_writer(stored.value, partial, {COLUMN: "dv"})
        writer.store(stored)
        self._take(writer, "")

    def _store_parts(self) -> None:
        """What this program has: the mixed values, their largest score in powers of two, and their sum of powers."""
        region = self._region
        factor = _LOG2E if region.score is not None else region.scale * _LOG2E
        mixed, tops, sums = (self._names[name] for name in PARTS)
        self._line(f"row = (part * {region.batch} + {BATCH}) * {region.queries} + {ROW}")
        self._line(f'top = tl.where(top == float("-inf"), {_NO_SCORE}, top * {factor!r})')
        self._line(f"tl.store({mixed} + row * {region.columns} + dv, mixed, mask={ROW}_live & dv_live)")
        self._line(f"tl.store({tops} + row, top, mask={ROW}_live)")
        self._line(f"tl.store({sums} + row, sums, mask={ROW}_live)")

    # expressions

    def _write_operand(self, name: str, expr: Expr, lanes: dict[str, str], *, partial: frozenset[str]) -> None:
        """A factor of a product, in its own type, with an element for each pair of lanes."""
        sizes = (self._region.columns, self._columns) if name == "v" else (self._region.features, self._features)
        partial |= frozenset(("d",)) if sizes[0] < sizes[1] else frozenset()
        writer = self._make_writer(expr, partial, lanes)
        pair = frozenset((ROW if name == "q" else COLUMN, "d"))
        if isinstance(expr, Load):
            text = self._take(writer, writer.write_load(expr, pair))
        else:
            whole = " + ".join(f"0 * {lanes.get(axis, axis)}" for axis in sorted(pair))
            text = f"({self._take(writer, writer.write(expr))} + ({whole}).to(tl.float32))"
            text += f".to(tl.{triton_name(self._region.dtype)})"
        self._line(f"{name} = {text}")

    def _make_writer(
        self, expr: Expr, partial: frozenset[str], lanes: dict[str, str] | None = None
    ) -> ExpressionWriter:
        return ExpressionWriter(
            [expr], self._names, has_columns=True, partial=partial, uses_int64=self._uses_int64, lanes=lanes or {}
        )

    def _take(self, writer: ExpressionWriter, text: str) -> str:
        """Have the lines of a writer, and what it says of them."""
        for line in writer.lines:
            self._line(line.strip())
        return text

    def _line(self, text: str) -> None:
        self._lines.append(self._indent + text)


def _list_buffers(region: AttentionRegion, *, is_split: bool) -> dict[str, str]:
    """The buffers of a kernel with their types: those it reads, then those it writes."""
    if is_split:
        return {**{each.buffer: each.dtype for each in region.inner_loads}, **dict.fromkeys(PARTS, "float32")}
    return {**{each.buffer: each.dtype for each in region.loads}, region.buffer: region.stored.dtype}


def _is_wide(region: AttentionRegion) -> bool:
    """Whether some index does not fit 32 bits."""
    exprs = [each for each in (region.query, region.key, region.value, region.score) if each is not None]
    found = [each.index for expr in exprs for each in walk(expr) if isinstance(each, Load | Position | Within)]
    ends = [bound for index in (*found, region.stored.place) for bound in index.bounds]
    return max(max(-least(end), greatest(end)) for end in ends) * 2 >= _INT32_END


def _power_above(number: int) -> int:
    return 1 << max(number - 1, 0).bit_length()
