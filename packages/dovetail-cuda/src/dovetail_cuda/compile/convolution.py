"""From a convolution to the text of its kernel: the sums of a tile by a function of ``kernels``, then what follows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dovetail_cuda.compile.products import LOCKS, PARTS, list_epilogue, write_epilogue
from dovetail_cuda.compile.source import KernelText
from dovetail_cuda.compile.writer import ACCUMULATOR, is_wide
from dovetail_cuda.graph.regions import ConvRegion
from dovetail_cuda.lower.expr import COLUMN, ROW
from dovetail_cuda.lower.sizes import greatest, may_exceed
from dovetail_cuda.lower.tensors import ConvTensor
from dovetail_cuda.lower.types import size_of

__all__ = ["ConvTile", "count_steps", "write_convolution"]

_HEADER: Final = """import triton
import triton.language as tl

from dovetail_cuda.kernels import convolution as c
from dovetail_cuda.kernels import functions as f
from dovetail_cuda.kernels import gemm as g


@triton.jit
def convolution({parameters}, EARLY: tl.constexpr):
"""
_LET_NEXT_START: Final = "f.let_next_start(EARLY)"
"""After the sums: programs that come earlier take the room of this kernel's, and spread badly themselves."""
_LINE_BYTES: Final = 128
"""What the cache reads at once."""


@dataclass(frozen=True, kw_only=True)
class ConvTile:
    """One way to cut a convolution."""

    m: int
    n: int
    k: int
    num_warps: int
    num_stages: int
    split: int = 1
    """Among how many programs the sum of an element is split."""
    group: int = 1
    """Rows of tiles that run together."""
    starts_early: bool = False
    """Whether it is launched before the kernel in front has ended."""
    prefetches: bool = False
    """Whether filters are read into the cache then."""

    @property
    def name(self) -> str:
        """What plans and timing caches call it."""
        split, early = f" split {self.split}" if self.split > 1 else "", " early" if self.starts_early else ""
        return f"tile {self.m}x{self.n}x{self.k} w{self.num_warps} s{self.num_stages}{split}{early}"


def count_steps(conv: ConvTensor, block: int) -> int:
    """How many steps the sums of a tile take: blocks of channels at each place of the window, or blocks of both."""
    deep, places = conv.weight.shape[1], math.prod(conv.sliding.kernel)
    return places * -(-deep // block) if deep >= block else -(-places * deep // block)


def write_convolution(region: ConvRegion, tile: ConvTile, *, precision: str) -> KernelText:
    """The text of a convolution's kernel, cut in one way; its buffers are roles."""
    return _ConvText(region, tile, precision).write()


class _ConvText:
    def __init__(self, region: ConvRegion, tile: ConvTile, precision: str) -> None:
        self._region, self._tile, self._precision = region, tile, precision
        conv = region.conv
        batch, filters, high, wide = conv.whole_shape
        self._groups = 1 if conv.is_depthwise else conv.group
        self._pixels, self._filters = batch * high * wide, filters
        self._columns = filters // self._groups
        self._tiles = (-(-self._pixels // tile.m), -(-self._columns // tile.n))
        self._steps = 1 if conv.is_depthwise else count_steps(conv, tile.k)
        sizes = {ROW: (self._pixels, tile.m), COLUMN: (self._columns, tile.n)}
        self._partial = frozenset(axis for axis, (size, part) in sizes.items() if size % part)
        image = region.image.offset + sum(n * s for n, s in zip(conv.image.shape, region.image.strides, strict=True))
        self._uses_int64 = is_wide([region.stored], max(greatest(image), conv.weight.count))

    def write(self) -> KernelText:
        conv = self._region.conv
        roles = {"image": conv.dtype, "weight": conv.dtype}
        roles |= {role: dtype for role, (_, dtype) in list_epilogue(self._region.stored).items()}
        if self._tile.split > 1:
            roles |= {PARTS: "float32", LOCKS: "int32"}
        lines = [*self._write_lanes(), *self._write_prefetch(), "f.wait(EARLY)", *self._write_sums()]
        lines += [*self._write_split(), *self._write_follower()]
        return KernelText(
            text=_HEADER.format(parameters=", ".join(roles)) + "".join(f"    {line}\n" for line in lines),
            name="convolution",
            parameters=tuple(roles),
            buffers=tuple(roles),
            types=tuple(roles.values()),
            grid=(self._tiles[0] * self._tiles[1], self._tile.split, self._groups),
            num_warps=self._tile.num_warps,
            num_stages=self._tile.num_stages,
            starts_early=self._tile.starts_early,
        )

    def _write_lanes(self) -> list[str]:
        tile, wide = self._tile, ".to(tl.int64)" if self._uses_int64 else ""
        down, across = self._tiles
        return [
            f"m, n = g.find_tile(tl.program_id(0), {down}, {across}, {tile.group if may_exceed(down, 1) else 1})",
            f"{ROW} = m{wide} * {tile.m} + tl.arange(0, {tile.m})",
            f"{COLUMN} = n{wide} * {tile.n} + tl.arange(0, {tile.n})",
        ]

    @property
    def _weight(self) -> str:
        count = self._columns * self._region.conv.weight.count // self._filters
        return f"weight + tl.program_id(2) * {count}" if self._groups > 1 else "weight"

    @property
    def _part(self) -> int:
        """The steps of one split."""
        return -(-self._steps // self._tile.split)

    def _write_prefetch(self) -> list[str]:
        """Before anything is waited for, have the cache read the filters of this tile."""
        conv, tile = self._region.conv, self._tile
        if not tile.prefetches or conv.is_depthwise:
            return []
        length = conv.weight.count // self._filters
        count = min(self._part * tile.k, length)
        first = f"tl.program_id(1) * {count}" if tile.split > 1 else "0"
        sizes = (self._columns, count, 1, length, self._tiles[0], tile.n, _LINE_BYTES // size_of(conv.dtype), "EARLY")
        given = ", ".join(map(str, sizes))
        return [f"g.prefetch_right({self._weight}, n * {tile.n}, {first}, m, {given})"]

    def _write_sums(self) -> list[str]:
        region, conv = self._region, self._region.conv
        image, constants = f"image + {region.image.offset}", self._list_constants()
        if conv.is_depthwise:
            constants["PER_CHANNEL"] = self._filters // conv.group
            line = f"{ACCUMULATOR} = c.slide_channels({image}, weight, {ROW}, {COLUMN}, {_join(constants)})"
            return [line, _LET_NEXT_START]
        deep = conv.weight.shape[1]
        constants |= {"C": deep, "BLOCK_K": self._tile.k, "PRECISION": repr(self._precision)}
        if self._groups > 1:
            image += f" + tl.program_id(2) * {deep * region.image.strides[1]}"
        bounds = f"0, {self._steps}"
        if self._tile.split > 1:
            first = f"tl.program_id(1) * {self._part}"
            bounds = f"{first}, tl.minimum({first} + {self._part}, {self._steps})"
        given = f"{image}, {self._weight}, {ROW}, {COLUMN}, {bounds}, {_join(constants)}"
        return [f"{ACCUMULATOR} = c.slide_tile({given})", _LET_NEXT_START]

    def _list_constants(self) -> dict[str, int | str]:
        conv, sliding, tile = self._region.conv, self._region.conv.sliding, self._tile
        return {
            "M": self._pixels,
            "N": self._columns,
            **dict(zip(("HIGH", "WIDE"), conv.image.shape[2:], strict=True)),
            **dict(zip(("OUT_HIGH", "OUT_WIDE"), sliding.outputs, strict=True)),
            **dict(zip(("R", "S"), sliding.kernel, strict=True)),
            **dict(zip(("STRIDE_H", "STRIDE_W"), sliding.strides, strict=True)),
            **dict(zip(("DILATION_H", "DILATION_W"), sliding.dilations, strict=True)),
            **dict(zip(("PAD_H", "PAD_W"), sliding.before, strict=True)),
            **dict(zip(("IMAGE", "CHANNEL", "LINE", "PIXEL"), self._region.image.strides, strict=True)),
            "IS_INSIDE": str(not any(sliding.before) and not any(sliding.after)),
            "BLOCK_M": tile.m,
            "BLOCK_N": tile.n,
        }

    def _write_split(self) -> list[str]:
        """Store this part of the sums; the last to do so has the whole."""
        if self._tile.split == 1:
            return []
        tile = self._tile
        number = f"tl.program_id(2) * {math.prod(self._tiles)} + tl.program_id(0)"
        given = f"{ACCUMULATOR}, {PARTS}, {LOCKS}, {number}, tl.program_id(1), {tile.split}, {tile.m}, {tile.n}"
        return [f"{ACCUMULATOR}, is_last = c.join_splits({given})"]

    def _write_follower(self) -> list[str]:
        split = self._tile.split > 1
        partial = self._partial | ({ROW} if split else set())
        shift = f"tl.program_id(2) * {self._columns} + " if self._groups > 1 else ""
        live = f"({ROW} < {self._pixels}) & is_last" if split else f"{ROW} < {self._pixels}"
        lines = write_epilogue(self._region.stored, partial, uses_int64=self._uses_int64)
        return [
            f"{ROW}_live = ({live})[:, None]",
            f"{COLUMN}_live = ({COLUMN} < {self._columns})[None, :]",
            f"{ROW} = {ROW}[:, None]",
            f"{COLUMN} = ({shift}{COLUMN})[None, :]",
            *(line.removeprefix("    ") for line in lines),
        ]


def _join(constants: Mapping[str, int | str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in constants.items())
