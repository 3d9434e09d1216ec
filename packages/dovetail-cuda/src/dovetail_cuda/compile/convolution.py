"""From a convolution to the text of its kernel: the sums of a tile by a function of ``kernels``, then what follows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dovetail_cuda.compile.epilogue import Epilogue, write_epilogue
from dovetail_cuda.compile.request import KernelRequest
from dovetail_cuda.graph.regions import ConvRegion
from dovetail_cuda.lower.conv_tiles import ConvTile, count_steps
from dovetail_cuda.lower.types import triton_name

__all__ = ["ConvKernel", "write_convolution"]

_TEXT: Final = """import triton
import triton.language as tl

from dovetail_cuda.kernels import convolution as c
from dovetail_cuda.kernels import functions as f


@triton.jit
def convolution({parameters}):
    tile = tl.program_id(0)
    i = tile // {tiles_n} * {m} + tl.arange(0, {m})
    j = tile % {tiles_n} * {n} + tl.arange(0, {n})
{sums}
    i_live = ({live})[:, None]
    j_live = (j < {columns})[None, :]
    i = i[:, None]
    j = ({shift}j)[None, :]
{lines}
"""
_INT32_END: Final = 2**31


@dataclass(frozen=True, kw_only=True)
class ConvKernel:
    """A kernel to compile, with what it is launched over."""

    request: KernelRequest
    grid: tuple[int, int, int]
    reads: tuple[str, ...]
    """The buffers that are read besides the image and the filters, in the order of the parameters."""


def write_convolution(region: ConvRegion, tile: ConvTile, *, capability: int, precision: str) -> ConvKernel:
    """The kernel of a convolution, cut in one way.

    Its parameters are the image, the filters, what is read besides, the result, and with splits the sums and the
    counters of all tiles.
    """
    batch, filters, high, wide = region.conv.whole_shape
    groups = 1 if region.conv.is_depthwise else region.conv.group
    columns, pixels = filters // groups, batch * high * wide
    epilogue = _write_epilogue(region, tile, (pixels, filters), groups)
    tiles_n = -(-columns // tile.n)
    names = [f"p{number}" for number in range(2 + len(epilogue.buffers) + 2 * (tile.splits > 1))]
    text = _TEXT.format(
        parameters=", ".join(names),
        tiles_n=tiles_n,
        m=tile.m,
        n=tile.n,
        sums="\n".join(f"    {line}" for line in _write_sums(region, tile, groups, names, precision)),
        live=f"(i < {pixels}) & is_last" if tile.splits > 1 else f"i < {pixels}",
        columns=columns,
        shift=f"tl.program_id(2) * {columns} + " if groups > 1 else "",
        lines="\n".join(epilogue.lines),
    )
    types = [region.conv.dtype, region.conv.dtype, *epilogue.buffers.values()]
    types += ["float32", "int32"] if tile.splits > 1 else []
    request = KernelRequest(
        function="convolution",
        text=text,
        signature={n: f"*{triton_name(t, short=True)}" for n, t in zip(names, types, strict=True)},
        num_warps=tile.num_warps,
        num_stages=tile.num_stages,
        capability=capability,
    )
    grid = (-(-pixels // tile.m) * tiles_n, tile.splits, groups)
    return ConvKernel(request=request, grid=grid, reads=tuple(epilogue.buffers)[:-1])


def _write_epilogue(region: ConvRegion, tile: ConvTile, shape: tuple[int, int], groups: int) -> Epilogue:
    masked = {"i"} if shape[0] % tile.m or tile.splits > 1 else set()
    masked |= {"j"} if shape[1] // groups % tile.n else set()
    return write_epilogue(
        region.stored, sums=region.sums, total="total", shape=shape, masked=frozenset(masked), first=2
    )


def _write_sums(region: ConvRegion, tile: ConvTile, groups: int, names: list[str], precision: str) -> list[str]:
    conv, image = region.conv, f"p0 + {region.image.offset}"
    constants = _list_constants(region, tile)
    if conv.is_depthwise:
        constants["PER_CHANNEL"] = conv.weight.shape[0] // conv.group
        return [f"total = c.slide_channels({image}, p1, i, j, {_join(constants)})"]
    columns, deep = conv.weight.shape[0] // groups, conv.weight.shape[1]
    constants |= {"N": columns, "C": deep, "BLOCK_K": tile.k, "PRECISION": repr(precision)}
    lines, weight, steps = [], "p1", count_steps(conv, tile.k)
    if groups > 1:
        image += f" + tl.program_id(2) * {deep * region.image.strides[1]}"
        weight += f" + tl.program_id(2) * {columns * deep * conv.sliding.kernel[0] * conv.sliding.kernel[1]}"
    part = -(-steps // tile.splits)
    bounds = f"0, {steps}"
    if tile.splits > 1:
        lines.append("split = tl.program_id(1)")
        bounds = f"split * {part}, tl.minimum(split * {part} + {part}, {steps})"
    lines.append(f"total = c.slide_tile({image}, {weight}, i, j, {bounds}, {_join(constants)})")
    if tile.splits > 1:
        tiles = "tile" if groups == 1 else "tl.program_id(2) * tl.num_programs(0) + tile"
        given = f"total, {names[-2]}, {names[-1]}, {tiles}, split, {tile.splits}, {tile.m}, {tile.n}"
        lines.append(f"total, is_last = c.join_splits({given})")
    return lines


def _list_constants(region: ConvRegion, tile: ConvTile) -> dict[str, int | str]:
    conv, sliding = region.conv, region.conv.sliding
    batch, filters, high, wide = conv.whole_shape
    is_inside = not any(sliding.before) and not any(sliding.after)
    names = ("IMAGE", "CHANNEL", "LINE", "PIXEL")
    return {
        "M": batch * high * wide,
        "N": filters,
        "HIGH": conv.image.shape[2],
        "WIDE": conv.image.shape[3],
        "OUT_HIGH": high,
        "OUT_WIDE": wide,
        **dict(zip(("R", "S"), sliding.kernel, strict=True)),
        **dict(zip(("STRIDE_H", "STRIDE_W"), sliding.strides, strict=True)),
        **dict(zip(("DILATION_H", "DILATION_W"), sliding.dilations, strict=True)),
        **dict(zip(("PAD_H", "PAD_W"), sliding.before, strict=True)),
        **dict(zip(names, region.image.strides, strict=True)),
        "IS_INSIDE": str(is_inside),
        "BLOCK_M": tile.m,
        "BLOCK_N": tile.n,
    }


def _join(constants: Mapping[str, int | str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in constants.items())

