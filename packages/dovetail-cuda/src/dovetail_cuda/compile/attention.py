"""From an attention region to the text of a Triton kernel that computes it in one pass over the keys.

A program has a tile of queries and goes over the keys in blocks: it keeps the largest score of each query so far, the
sum of powers relative to that, and the values mixed by these powers, and corrects the two when a larger score comes.
What masks scores is part of the kernel as any other expression. Blocks of keys that no query of the tile may see are
not visited, and only those at an end are compared with it. Where the keys are split over several programs, each
stores what it has, and a second kernel joins them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from dovetail_cuda.compile.source import KernelText, convert_text, number_text, register_of
from dovetail_cuda.graph.attention import SCORE, AttentionRegion
from dovetail_cuda.lower.expr import (
    Apply,
    Convert,
    Expr,
    Literal,
    Load,
    Position,
    Reduced,
    Within,
    children,
    walk,
)
from dovetail_cuda.lower.index import Gathered, Index, Quotient, Remainder, Var
from dovetail_cuda.lower.tensors import refuse
from dovetail_cuda.lower.types import compute_type, triton_name

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
def attention({parameters}):
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
    return _Writer(region, tile, precision).write()


@dataclass
class _Scope:
    """The lanes that stand for variables while one tile is computed, and which of them are there."""

    lanes: Mapping[str, str]
    live: Mapping[str, str] = field(default_factory=dict)
    values: dict[Expr, str] = field(default_factory=dict)


class _Writer:
    def __init__(self, region: AttentionRegion, tile: AttentionTile, precision: str) -> None:
        self._region, self._tile, self._precision = region, tile, precision
        self._buffers = _list_buffers(region, is_split=tile.num_parts > 1)
        self._names = {buffer: f"p{number}" for number, buffer in enumerate(self._buffers)}
        self._lines: list[str] = []
        self._indent = "    "
        self._count = 0
        self._num_tiles = -(-region.queries // tile.queries)
        self._part_keys = -(-region.keys // tile.num_parts)
        self._features, self._columns = (max(_power_above(n), 16) for n in (region.features, region.columns))

    def write(self) -> KernelText:
        self._write_lanes()
        self._line(f"q = {self._operand(self._region.query, self._scope('i', 'dq', self._region.features))}")
        rows = f"[{self._tile.queries}, 1]"
        self._line(f'top = tl.full({rows}, float("-inf"), tl.float32)')
        self._line(f"sums = tl.zeros({rows}, tl.float32)")
        self._line(f"mixed = tl.zeros([{self._tile.queries}, {self._columns}], tl.float32)")
        self._write_blocks()
        if self._tile.num_parts > 1:
            self._store_parts()
        else:
            self._store_result()
        parameters = ", ".join(self._names.values())
        return KernelText(
            text=_HEADER.format(parameters=parameters) + "\n".join(self._lines) + "\n",
            name="attention",
            buffers=tuple(self._buffers),
            types=tuple(self._buffers.values()),
            grid=self._num_tiles * self._region.batch * self._tile.num_parts,
            num_warps=self._tile.num_warps,
            num_stages=self._tile.num_stages,
        )

    # lanes

    def _write_lanes(self) -> None:
        region, tile, parts = self._region, self._tile, self._tile.num_parts
        wide = ".to(tl.int64)" if _is_wide(region) else ""
        self._line("number = tl.program_id(0)")
        if parts > 1:
            self._line(f"part = number % {parts}")
            self._line(f"number = number // {parts}")
        if region.causal is None:
            self._line(f"first = number % {self._num_tiles} * {tile.queries}")
            self._line(f"b = (number // {self._num_tiles}){wide}")
        else:  # queries that see the most keys take longest, and begin first
            self._line(f"first = ({self._num_tiles - 1} - number // {region.batch}) * {tile.queries}")
            self._line(f"b = (number % {region.batch}){wide}")
        self._line("whole = b + tl.zeros([1, 1], tl.int32)")
        self._line(f"i = first + tl.arange(0, {tile.queries})[:, None]")
        for name, size in (("dq", self._features), ("dv", self._columns)):
            self._line(f"{name} = tl.arange(0, {size})[None, :]")
        self._line(f"dk = tl.arange(0, {self._features})[:, None]")

    def _scope(self, row: str, column: str, size: int, *, is_last: bool = False) -> _Scope:
        """Lanes of a tile whose second variable goes over features of a head."""
        live = {}
        if size < (self._columns if column == "dv" else self._features):
            live["d"] = f"({column} < {size})"
        variable = "i" if row == "i" else "j"
        if variable == "i" and self._region.queries % self._tile.queries:
            live["i"] = f"(i < {self._region.queries})"
        if variable == "j" and is_last:
            live["j"] = f"({row} < end)"
        return _Scope(lanes={"b": "b", variable: row, "d": column}, live=live)

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
        if count <= tile.keys:
            self._line(f"start = {begin}")
            self._write_block(is_last=not is_even or region.causal is not None or count < tile.keys, is_only=True)
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
        self._line(f"j = start + tl.arange(0, {self._tile.keys})[None, :]")
        self._line(f"jv = start + tl.arange(0, {self._tile.keys})[:, None]")
        self._line(f"k = {self._operand(region.key, self._scope('j', 'dk', region.features, is_last=is_last))}")
        if is_only:  # what is asked for early is there when it is needed; in loops the compiler sees to that
            self._load_values(is_last=is_last)
        self._line(f"scores = tl.dot(q, k, {dot})")
        factor = self._write_scores(is_last=is_last)
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
            self._load_values(is_last=is_last)
            self._line(f"smaller = tl.exp2((top - base) * {factor!r})")
            self._line("sums = sums * smaller + tl.sum(powers, 1, keep_dims=True)")
            self._line(f"mixed = tl.dot(powers.to(v.dtype), v, mixed * smaller, {dot})")
        self._line("top = higher")

    def _load_values(self, *, is_last: bool) -> None:
        scope = self._scope("jv", "dv", self._region.columns, is_last=is_last)
        self._line(f"v = {self._operand(self._region.value, scope)}")

    @property
    def _may_be_blind(self) -> bool:
        """Whether a query may see no key of the first block: by a mask, or because the block is of another part."""
        return self._region.score is not None or self._tile.num_parts > 1

    def _write_scores(self, *, is_last: bool) -> float:
        """Mask scores; tells what they are still to be multiplied with, for powers of two."""
        region, factor = self._region, self._region.scale * _LOG2E
        if region.score is not None:
            self._line(f"scores = scores * {region.scale!r}")
            live = {"j": "(j < end)"} if is_last else {}
            if region.queries % self._tile.queries:
                live["i"] = f"(i < {region.queries})"
            lanes = {"b": "whole", "i": "i", "j": "j"}
            scope = _Scope(lanes=lanes, live=live, values=dict.fromkeys(_list_scores(region.score), "scores"))
            self._line(f"scores = {self._value(region.score, scope)}")
            factor = _LOG2E
        if is_last:
            seen = ["(j < end)"]
            if region.causal is not None:
                seen.append(f"(j <= i + {region.causal})")
            self._line(f'scores = tl.where({" & ".join(seen)}, scores, float("-inf"))')
        return factor

    # results

    def _store_result(self) -> None:
        region = self._region
        self._line("result = mixed / sums")
        if region.zeroes_blind and region.score is not None:
            self._line("result = tl.where(sums == 0, 0.0, result)")
        scope = self._scope("i", "dv", region.columns)
        place = f"{self._render(_find_place(region), scope)} + 0 * i + 0 * dv"
        self._store(self._names[region.buffer], place, f"result.to(tl.{triton_name(region.dtype)})", scope)

    def _store_parts(self) -> None:
        """What this program has: the mixed values, their largest score in powers of two, and their sum of powers."""
        region = self._region
        scope = self._scope("i", "dv", region.columns)
        rows = self._scope("i", "dv", self._columns)
        factor = _LOG2E if region.score is not None else region.scale * _LOG2E
        mixed, tops, sums = (self._names[name] for name in PARTS)
        self._line(f"row = (part * {region.batch} + b) * {region.queries} + i")
        self._line(f'top = tl.where(top == float("-inf"), {_NO_SCORE}, top * {factor!r})')
        self._store(mixed, f"row * {region.columns} + dv", "mixed", scope)
        self._store(tops, "row", "top", rows)
        self._store(sums, "row", "sums", rows)

    def _store(self, pointer: str, place: str, value: str, scope: _Scope) -> None:
        mask = " & ".join(scope.live.values())
        self._line(f"tl.store({pointer} + {place}, {value}{f', mask={mask}' if mask else ''})")

    # expressions

    def _operand(self, expr: Expr, scope: _Scope) -> str:
        """A factor of a product, in its own type, with an element for each pair of lanes."""
        pair = [axis for axis in scope.lanes if axis != "b"]
        if isinstance(expr, Load):
            for child in children(expr):
                self._value(child, scope)
            return self._load_text(expr, scope, frozenset(pair))
        whole = " + ".join(f"0 * {scope.lanes[axis]}" for axis in pair)
        return f"({self._value(expr, scope)} + ({whole}).to(tl.float32)).to(tl.{triton_name(self._region.dtype)})"

    def _value(self, expr: Expr, scope: _Scope) -> str:
        for each in walk(expr):
            if each not in scope.values:
                self._count += 1
                name = f"v{self._count}"
                self._line(f"{name} = {self._text(each, scope)}")
                scope.values[each] = name
        return scope.values[expr]

    def _text(self, expr: Expr, scope: _Scope) -> str:
        match expr:
            case Load():
                widened = ".to(tl.float32)" if compute_type(expr.dtype) != expr.dtype else ""
                return f"{self._load_text(expr, scope)}{widened}"
            case Literal():
                return f"tl.full([1, 1], {number_text(expr.value)}, {register_of(expr.dtype)})"
            case Position():
                return f"({self._render(expr.index, scope)} + tl.zeros([1, 1], tl.int32)).to({register_of(expr.dtype)})"
            case Within():
                return self._within_text(expr, scope)
            case Apply():
                return expr.text.format(*(scope.values[arg] for arg in expr.args))
            case Convert():
                return convert_text(scope.values[expr.arg], expr.arg.dtype, expr.dtype)
            case Reduced():
                raise refuse("a sum inside of attention must be stored before it")

    def _load_text(self, expr: Load, scope: _Scope, least: frozenset[str] = frozenset()) -> str:
        """A load over the axes that it changes along, and at least some."""
        index = self._render(expr.index, scope)
        axes = _find_axes(expr) | least
        spread = "".join(f" + 0 * {scope.lanes[axis]}" for axis in sorted(axes - _index_axes(expr.index)))
        mask = [text for axis, text in scope.live.items() if axis in axes]
        mask += [] if expr.guard is None else [scope.values[expr.guard]]
        condition = f", mask={' & '.join(mask)}, other=0" if mask else ""
        return f"tl.load({self._names[expr.buffer]} + {index}{spread}{condition})"

    def _within_text(self, expr: Within, scope: _Scope) -> str:
        index = f"({self._render(expr.index, scope)} + tl.zeros([1, 1], tl.int32))"
        parts = [] if expr.low is None else [f"({index} >= {expr.low})"]
        parts += [] if expr.high is None else [f"({index} < {expr.high})"]
        return " & ".join(parts)

    def _render(self, index: Index, scope: _Scope) -> str:
        parts = [self._render_term(atom, factor, scope) for atom, factor in index.terms]
        if index.constant or not parts:
            parts.append(str(index.constant))
        return f"({' + '.join(parts)})" if len(parts) > 1 else parts[0]

    def _render_term(self, atom: Var | Gathered | Quotient | Remainder, factor: int, scope: _Scope) -> str:
        match atom:
            case Var():
                text = scope.lanes[atom.name]
            case Gathered():
                text = f"{scope.values[atom.value]}.to(tl.{'int64' if _is_wide(self._region) else 'int32'})"
            case Quotient():
                text = f"({self._render(atom.of, scope)} // {atom.by})"
            case Remainder():
                text = f"({self._render(atom.of, scope)} % {atom.by})"
        return text if factor == 1 else f"{text} * {factor}"

    def _line(self, text: str) -> None:
        self._lines.append(self._indent + text)


def _list_buffers(region: AttentionRegion, *, is_split: bool) -> dict[str, str]:
    """The buffers of a kernel with their types: those it reads, then those it writes."""
    read = {name: dtype for name, dtype in region.operands.items() if name != region.buffer}
    return {**read, **(dict.fromkeys(PARTS, "float32") if is_split else {region.buffer: region.dtype})}


def _find_place(region: AttentionRegion) -> Index:
    sizes = {"b": region.batch, "i": region.queries, "d": region.columns}
    return region.find_place(*(Index.variable(name, size) for name, size in sizes.items()))


def _list_scores(expr: Expr) -> list[Expr]:
    return [each for each in walk(expr) if isinstance(each, Load) and each.buffer == SCORE]


def _find_axes(expr: Expr) -> frozenset[str]:
    """The variables that an expression changes with."""
    found: set[str] = set()
    for each in walk(expr):
        if isinstance(each, Load | Position | Within):
            found |= _index_axes(each.index)
    return frozenset(found)


def _index_axes(index: Index) -> frozenset[str]:
    found: set[str] = set()
    for atom, _ in index.terms:
        if isinstance(atom, Var):
            found.add(atom.name)
        elif isinstance(atom, Quotient | Remainder):
            found |= _index_axes(atom.of)
        else:
            found |= _find_axes(atom.value)
    return frozenset(found)


def _is_wide(region: AttentionRegion) -> bool:
    """Whether some index does not fit 32 bits."""
    exprs = [region.query, region.key, region.value, *([] if region.score is None else [region.score])]
    indices = [
        each.index
        for expr in exprs
        for each in walk(expr)
        if isinstance(each, Load | Position | Within) and not (isinstance(each, Load) and each.buffer == SCORE)
    ]
    return max(max(map(abs, index.bounds)) for index in (*indices, _find_place(region))) * 2 >= _INT32_END


def _power_above(number: int) -> int:
    return 1 << max(number - 1, 0).bit_length()
