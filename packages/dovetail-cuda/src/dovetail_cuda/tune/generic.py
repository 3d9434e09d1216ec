"""The one way of each region whose sizes vary: a kernel of ours in a tile that suits most shapes, chosen by rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from dovetail_cuda.compile.attention import AttentionTile, write_attention
from dovetail_cuda.compile.computed import ComputedTile, write_computed
from dovetail_cuda.compile.convolution import ConvTile, write_convolution
from dovetail_cuda.compile.products import ProductTile, list_epilogue, write_product
from dovetail_cuda.compile.source import KernelText
from dovetail_cuda.graph.attention import AttentionRegion
from dovetail_cuda.graph.computed import ComputedRegion
from dovetail_cuda.graph.regions import ConvRegion, ElementRegion, ProductRegion, Region
from dovetail_cuda.lower.sizes import greatest
from dovetail_cuda.lower.types import size_of
from dovetail_cuda.tune.drafts import draft_text
from dovetail_cuda.tune.elements import make_element_task
from dovetail_cuda.tune.kit import Kit
from dovetail_cuda.tune.questions import Place, Question, Task, Way

__all__ = ["make_generic_task"]

_FEW_ROWS: Final = 16
"""Where there are never more rows, tiles are small."""
_MANY_FEATURES: Final = 128
"""Heads beyond this leave room for small tiles only."""


def make_generic_task(region: Region, kit: Kit) -> Task:
    """The task of a region; there is nothing to choose."""
    return _MAKERS[type(region)](region, kit)


def _make_task(region: Region, text: KernelText, places: Mapping[str, Place], kit: Kit) -> Task:
    """The task of a kernel over these places; its roles are numbers, so that equal kernels are one question."""
    roles = {name: f"p{number}" for number, name in enumerate(text.buffers)}
    draft = draft_text(text, tuple(roles.values()), kit.capability)
    way = Way(name=f"any shape, {text.name} of {text.num_warps} warps", drafts=[draft])
    question = Question(text=f"{draft.request.make_key()} {text.grid}", operands={}, make_ways=lambda: [way])
    return Task(region=region, question=question, places={role: places[name] for name, role in roles.items()})


def _precision(dtype: str, kit: Kit) -> str:
    return "tf32" if kit.allows_tf32 and dtype == "float32" else "ieee"


def _by_name(buffers: Mapping[str, Any]) -> dict[str, Place]:
    return {name: Place(buffer=name) for name in buffers}


def _list_followers(region: ProductRegion | ConvRegion) -> dict[str, Place]:
    return {role: Place(buffer=name) for role, (name, _) in list_epilogue(region.stored).items()}


def _make_product(region: ProductRegion, kit: Kit) -> Task:
    m = 16 if greatest(region.m) <= _FEW_ROWS else 64
    deep = 32 if region.dtype == "float32" else 64
    tile = ProductTile(m=m, n=64, k=deep, num_warps=4, num_stages=3)
    text = write_product(region, tile, allows_tf32=_precision(region.dtype, kit) == "tf32")
    size = size_of(region.dtype)
    places = {
        "left": Place(buffer=region.left.buffer, offset=region.left.offset * size),
        "right": Place(buffer=region.right.buffer, offset=region.right.offset * size),
        **_list_followers(region),
    }
    return _make_task(region, text, places, kit)


def _make_attention(region: AttentionRegion, kit: Kit) -> Task:
    is_wide = max(region.features, region.columns) > _MANY_FEATURES or region.dtype == "float32"
    queries = 16 if greatest(region.queries) <= _FEW_ROWS else 32 if is_wide else 64
    tile = AttentionTile(queries=queries, keys=32 if is_wide else 64, num_warps=4, num_stages=2)
    text = write_attention(region, tile, _precision(region.dtype, kit))
    return _make_task(region, text, _by_name(region.operands), kit)


def _make_conv(region: ConvRegion, kit: Kit) -> Task:
    conv = region.conv
    if conv.is_depthwise:
        tile = ConvTile(m=8, n=32, k=1, num_warps=2, num_stages=1)
    else:
        tile = ConvTile(m=64, n=32, k=32, num_warps=4, num_stages=3)
    text = write_convolution(region, tile, precision=_precision(conv.dtype, kit))
    operands = {"image": Place(buffer=region.image.buffer), "weight": Place(buffer=region.weight)}
    return _make_task(region, text, {**operands, **_list_followers(region)}, kit)


def _make_computed(region: ComputedRegion, kit: Kit) -> Task:
    deep = 32 if region.dtype == "float32" else 64
    tile = ComputedTile(m=16 if greatest(region.m) <= _FEW_ROWS else 64, n=32, k=deep, num_warps=4, num_stages=2)
    text = write_computed(region, tile, precision=_precision(region.dtype, kit))
    return _make_task(region, text, _by_name(region.operands), kit)


_MAKERS: Final[Mapping[type[Region], Callable[[Any, Kit], Task]]] = {
    AttentionRegion: _make_attention,
    ComputedRegion: _make_computed,
    ConvRegion: _make_conv,
    ElementRegion: make_element_task,
    ProductRegion: _make_product,
}
