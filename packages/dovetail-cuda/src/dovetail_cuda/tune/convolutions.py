"""The ways of a convolution: tiles of kernels of ours."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial

from dovetail_cuda.compile.convolution import ConvKernel, write_convolution
from dovetail_cuda.graph.regions import ConvRegion
from dovetail_cuda.lower.conv_tiles import ConvTile, list_conv_tiles
from dovetail_cuda.lower.expr import Load, walk
from dovetail_cuda.tune.kit import Kit
from dovetail_cuda.tune.questions import KernelDraft, Operand, Place, Question, Task, Temporary, Way

__all__ = ["make_conv_task"]

_TF32_TOLERANCE = 1e-3


def make_conv_task(region: ConvRegion, kit: Kit) -> Task:
    """The task of a convolution."""
    tiles = list_conv_tiles(region.conv, kit.multiprocessors)
    kernel = _write(region, tiles[0], kit)
    reads = kernel.reads
    names = dict(zip(_list_roles(reads), (region.image.buffer, region.weight, *reads, region.stored.buffer), strict=True))
    question = Question(
        text=_describe(region, kit) + (" cold" if kit.is_cold else ""),
        operands=_list_operands(region, reads, kit),
        make_ways=partial(_list_ways, region, tiles, kit),
    )
    return Task(region=region, question=question, places={role: Place(buffer=name) for role, name in names.items()})


def _list_roles(reads: Sequence[str]) -> tuple[str, ...]:
    return ("image", "weight", *(f"read{number}" for number in range(len(reads))), "result")


def _write(region: ConvRegion, tile: ConvTile, kit: Kit) -> ConvKernel:
    precision = "tf32" if kit.allows_tf32 and region.conv.dtype == "float32" else "ieee"
    return write_convolution(region, tile, capability=kit.capability, precision=precision)


def _list_operands(region: ConvRegion, reads: Sequence[str], kit: Kit) -> dict[str, Operand]:
    """What a trial places: of each buffer as much as is read."""
    conv, image = region.conv, region.image
    last = image.offset + sum((n - 1) * step for n, step in zip(conv.image.shape, image.strides, strict=True))
    loads = [each for each in walk(region.stored.value) if isinstance(each, Load)]
    made = {
        "image": Operand(count=last + 1, dtype=conv.dtype, kind="input"),
        "weight": Operand(count=conv.weight.count, dtype=conv.dtype, kind=kit.find_kind(region.weight)),
    }
    for number, name in enumerate(reads):
        found = [each for each in loads if each.buffer == name]
        count = max(each.index.bounds[1] for each in found) + 1
        made[f"read{number}"] = Operand(count=count, dtype=found[0].dtype, kind=kit.find_kind(name))
    count = region.stored.place.bounds[1] + 1
    return {**made, "result": Operand(count=count, dtype=region.stored.dtype, kind="output")}


def _list_ways(region: ConvRegion, tiles: Sequence[ConvTile], kit: Kit) -> list[Way]:
    return [_make_way(region, tile, kit) for tile in tiles]


def _make_way(region: ConvRegion, tile: ConvTile, kit: Kit) -> Way:
    kernel = _write(region, tile, kit)
    roles, temporaries = _list_roles(kernel.reads), {}
    if tile.splits > 1:
        roles, tiles = (*roles, "parts", "counters"), kernel.grid[0] * kernel.grid[2]
        temporaries["parts"] = Temporary(size_bytes=4 * tiles * tile.splits * tile.m * tile.n)
        temporaries["counters"] = Temporary(size_bytes=4 * tiles, is_zeroed=True)
    draft = KernelDraft(roles=roles, request=kernel.request, grid=kernel.grid)
    tolerance = _TF32_TOLERANCE if kit.allows_tf32 and region.conv.dtype == "float32" else 0.0
    return Way(name=tile.name, drafts=[draft], temporaries=temporaries, tolerance=tolerance)


def _describe(region: ConvRegion, kit: Kit) -> str:
    """Everything that decides the time of a convolution."""
    conv, sliding = region.conv, region.conv.sliding
    window = "x".join(map(str, sliding.kernel))
    sizes = [
        f"convolution {'x'.join(map(str, conv.image.shape))} with {conv.weight.shape[0]} of {window} {conv.dtype}",
        f"stride {','.join(map(str, sliding.strides))} pads {','.join(map(str, (*sliding.before, *sliding.after)))}",
        f"dilation {','.join(map(str, sliding.dilations))} groups {conv.group}",
        f"at {region.image.offset} by {','.join(map(str, region.image.strides))}",
    ]
    follows = hashlib.sha256(_write(region, _PLAIN, kit).request.text.encode())
    sizes += ["tf32"] if kit.allows_tf32 and conv.dtype == "float32" else []
    return " ".join([*sizes, f"then {follows.hexdigest()[:12]}"])


_PLAIN = ConvTile(m=16, n=16, k=16, num_warps=4, num_stages=1)
"""The cut whose text tells what follows a convolution."""
