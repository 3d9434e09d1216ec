"""What each kind of region asks; a further kind of region is one more entry of ``_MAKERS``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from dovetail_cuda.graph.attention import AttentionRegion
from dovetail_cuda.graph.computed import ComputedRegion
from dovetail_cuda.graph.regions import ConvRegion, ElementRegion, ProductRegion, Region
from dovetail_cuda.tune.attention import make_attention_task
from dovetail_cuda.tune.computed import make_computed_task
from dovetail_cuda.tune.convolutions import make_conv_task
from dovetail_cuda.tune.elements import make_element_task
from dovetail_cuda.tune.generic import make_generic_task
from dovetail_cuda.tune.kit import Kit
from dovetail_cuda.tune.products import make_product_task
from dovetail_cuda.tune.questions import Task

__all__ = ["make_task"]


def make_task(region: Region, kit: Kit) -> Task:
    """What a region asks."""
    return make_generic_task(region, kit) if kit.is_generic else _MAKERS[type(region)](region, kit)


_MAKERS: Final[Mapping[type[Region], Callable[[Any, Kit], Task]]] = {
    AttentionRegion: make_attention_task,
    ComputedRegion: make_computed_task,
    ConvRegion: make_conv_task,
    ElementRegion: make_element_task,
    ProductRegion: make_product_task,
}
