"""The ways of a convolution: tiles of kernels of ours, and plans of cuDNN."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec

from dovetail_cuda.compile.convolution import ConvTile, write_convolution
from dovetail_cuda.compile.products import LOCKS, PARTS, list_epilogue, write_epilogue
from dovetail_cuda.graph.regions import ConvRegion
from dovetail_cuda.lower.expr import Load, walk
from dovetail_cuda.run.convolutions import BuiltConvPlan
from dovetail_cuda.run.payload import Launches, make_conv_launch
from dovetail_cuda.tune.conv_form import match_convolution
from dovetail_cuda.tune.conv_tiles import list_conv_tiles
from dovetail_cuda.tune.drafts import draft_text
from dovetail_cuda.tune.kit import Kit
from dovetail_cuda.tune.questions import ConvolutionAsk, Draft, Kernels, Operand, Place, Question, Task, Temporary, Way

__all__ = ["ConvLibraryDraft", "make_conv_task"]

_TF32_TOLERANCE: Final = 1e-3


@dataclass(frozen=True, kw_only=True)
class ConvLibraryDraft(Draft):
    """A convolution by a plan of cuDNN."""

    ask: ConvolutionAsk
    built: BuiltConvPlan

    @property
    def scratch_bytes(self) -> int:
        """What the plan needs, or another one in its place."""
        return self.built.scratch_bytes

    def make_launch(self, kernels: Kernels, buffers: list[int], offsets: list[int], layers: list[str]) -> Launches:
        """The call of the library."""
        given = offsets or [0] * len(buffers)
        code = kernels.keep(self.built.code)
        launch = make_conv_launch(self.ask.convolution, self.built, code, buffers, self.ask.image_offset)
        shifted = [one + other for one, other in zip(given, launch.offsets or [0] * len(buffers), strict=True)]
        return msgspec.structs.replace(launch, offsets=shifted if any(shifted) else [], layers=layers)


def make_conv_task(region: ConvRegion, kit: Kit) -> Task:
    """The task of a convolution."""
    buffers = {role: buffer for role, (buffer, _) in list_epilogue(region.stored).items()}
    buffers = {"image": region.image.buffer, "weight": region.weight, **buffers}
    question = Question(
        text=_describe(region, kit),
        operands=_list_operands(region, kit),
        make_ways=partial(_list_ways, region, kit),
        convolution=_find_ask(region, kit),
    )
    return Task(region=region, question=question, places={role: Place(buffer=name) for role, name in buffers.items()})


def _allows_tf32(region: ConvRegion, kit: Kit) -> bool:
    return kit.allows_tf32 and region.conv.dtype == "float32"


def _list_operands(region: ConvRegion, kit: Kit) -> dict[str, Operand]:
    """What a trial places: of each buffer as much as is read."""
    conv, image = region.conv, region.image
    last = image.offset + sum((n - 1) * step for n, step in zip(conv.image.shape, image.strides, strict=True))
    loads = [each for each in walk(region.stored.value) if isinstance(each, Load)]
    made = {
        "image": Operand(count=last + 1, dtype=conv.dtype, kind="input"),
        "weight": Operand(count=conv.weight.count, dtype=conv.dtype, kind=kit.find_kind(region.weight)),
    }
    for role, (name, dtype) in list_epilogue(region.stored).items():
        ends = [each.index.bounds[1] for each in loads if each.buffer == name]
        end = region.stored.place.bounds[1] if role == "result" else max(ends)
        kind = "output" if role == "result" else kit.find_kind(name)
        made[role] = Operand(count=end + 1, dtype=dtype, kind=kind)
    return made


def _list_ways(region: ConvRegion, kit: Kit) -> Sequence[Way]:
    is_weight = kit.find_kind(region.weight) == "weight"
    tiles = list_conv_tiles(region.conv, kit.multiprocessors, is_weight=is_weight)
    ours = [_make_way(region, tile, kit) for tile in (tiles if kit.searches_convolutions else tiles[:1])]
    return [*ours, *_list_library_ways(region, kit)]


def _list_library_ways(region: ConvRegion, kit: Kit) -> list[Way]:
    ask = _find_ask(region, kit)
    if ask is None:
        return []
    drafts = [ConvLibraryDraft(roles=ask.roles, ask=ask, built=built) for built in kit.find_conv_plans(ask.convolution)]
    return [Way(name=draft.built.name, drafts=[draft], tolerance=ask.tolerance) for draft in drafts]


def _find_ask(region: ConvRegion, kit: Kit) -> ConvolutionAsk | None:
    """What the library is asked for; None where it has nothing like it."""
    form = match_convolution(region, allows_tf32=_allows_tf32(region, kit))
    if form is None:
        return None
    names = {buffer: role for role, (buffer, _) in list_epilogue(region.stored).items()}
    extra = [names[buffer] for buffer in (form.bias, form.residual) if buffer is not None]
    return ConvolutionAsk(
        convolution=form.convolution,
        roles=("image", "weight", *extra, "result"),
        image_offset=form.image_offset,
        tolerance=_TF32_TOLERANCE if form.convolution.allows_tf32 else 0.0,
    )


def _make_way(region: ConvRegion, tile: ConvTile, kit: Kit) -> Way:
    text = write_convolution(region, tile, precision="tf32" if _allows_tf32(region, kit) else "ieee")
    temporaries, tiles = {}, text.grid[0] * text.grid[2]
    if tile.split > 1:
        temporaries[PARTS] = Temporary(size_bytes=4 * tiles * tile.split * tile.m * tile.n)
        temporaries[LOCKS] = Temporary(size_bytes=4 * tiles, is_zeroed=True)
    draft = draft_text(text, text.buffers, kit.capability)
    tolerance = _TF32_TOLERANCE if _allows_tf32(region, kit) else 0.0
    return Way(name=tile.name, drafts=[draft], temporaries=temporaries, tolerance=tolerance)


def _describe(region: ConvRegion, kit: Kit) -> str:
    """Everything that decides the time of a convolution."""
    conv, sliding, image = region.conv, region.conv.sliding, region.image
    words = [
        f"convolution {_list('x', *conv.image.shape)} by {_list('x', *conv.weight.shape)} {conv.dtype}",
        f"stride {_list(',', *sliding.strides)} pads {_list(',', *sliding.before, *sliding.after)}",
        f"dilation {_list(',', *sliding.dilations)} groups {conv.group}",
        f"at {image.offset} by {_list(',', *image.strides)} {_digest(region)}",
    ]
    words += ["tf32"] if _allows_tf32(region, kit) else []
    return " ".join([*words, *(["cold"] if kit.is_cold and kit.find_kind(region.weight) == "weight" else [])])


def _list(separator: str, *numbers: int) -> str:
    return separator.join(map(str, numbers))


def _digest(region: ConvRegion) -> str:
    """What follows, by the digest of its lines."""
    lines = "\n".join(write_epilogue(region.stored, frozenset(), uses_int64=False))
    types = " ".join(dtype for _, dtype in list_epilogue(region.stored).values())
    return f"followed by {hashlib.sha256((lines + types).encode()).hexdigest()[:12]}"
