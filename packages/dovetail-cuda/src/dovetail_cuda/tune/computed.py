"""The ways of a product with a computed factor: tiles, a sum for each element, and steps with the factor stored."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from dovetail_cuda.compile.computed import ComputedTile, write_computed
from dovetail_cuda.graph.computed import ComputedRegion
from dovetail_cuda.graph.regions import ElementRegion
from dovetail_cuda.tune.drafts import draft_text
from dovetail_cuda.tune.elements import make_element_draft
from dovetail_cuda.tune.kit import Kit
from dovetail_cuda.tune.products import TF32_TOLERANCE
from dovetail_cuda.tune.questions import Operand, Place, Question, Task, Way
from dovetail_cuda.tune.steps import list_step_ways

__all__ = ["make_computed_task"]

_TILES: Final = ((16, 64, 64, 4, 3), (16, 32, 128, 4, 3), (32, 64, 64, 4, 3), (64, 64, 64, 4, 3), (128, 64, 64, 8, 3))
_FLOAT_TILES: Final = ((16, 32, 32, 4, 2), (32, 32, 32, 4, 2), (64, 32, 32, 4, 2))
_FEW_ROWS: Final = 16
"""Up to so many rows of the left factor, one sum for each element may be fastest."""


def make_computed_task(region: ComputedRegion, kit: Kit) -> Task:
    """The task of such a product."""
    roles = {buffer: f"p{number}" for number, buffer in enumerate(region.operands)}
    counts = {region.stored.buffer: region.stored.place.bounds[1] + 1}
    for each in region.loads:
        counts[each.buffer] = max(counts.get(each.buffer, 0), each.index.bounds[1] + 1)
    operands = {
        role: Operand(
            count=counts[buffer],
            dtype=region.operands[buffer],
            kind="output" if buffer == region.stored.buffer else kit.find_kind(buffer),
        )
        for buffer, role in roles.items()
    }
    is_cold = kit.is_cold and any(operand.kind == "weight" for operand in operands.values())
    question = Question(
        text=_describe(region, kit) + (" cold" if is_cold else ""),
        operands=operands,
        make_ways=partial(_list_ways, region, kit, roles),
    )
    return Task(region=region, question=question, places={role: Place(buffer=name) for name, role in roles.items()})


def _precision(region: ComputedRegion, kit: Kit) -> str:
    return "tf32" if kit.allows_tf32 and region.dtype == "float32" else "ieee"


def _describe(region: ComputedRegion, kit: Kit) -> str:
    tile = ComputedTile(m=16, n=16, k=16, num_warps=4, num_stages=1)
    text = write_computed(region, tile, precision=_precision(region, kit)).text
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return f"computed product {region.m}x{region.n}x{region.k} {region.dtype} {digest}"


def _list_ways(region: ComputedRegion, kit: Kit, roles: Mapping[str, str]) -> list[Way]:
    """Results of the steps come first, for the others are compared with them."""
    precision = _precision(region, kit)
    tolerance = TF32_TOLERANCE if precision == "tf32" else 0.0
    ways = list_step_ways(region.steps, kit, roles, tolerance)
    if region.m <= _FEW_ROWS and isinstance(region.rows, ElementRegion):
        draft, buffers = make_element_draft(region.rows, kit)
        given = replace(draft, roles=tuple(roles[name] for name in buffers))
        ways.append(Way(name="rows", drafts=[given], tolerance=tolerance))
    for m, n, k, warps, stages in _FLOAT_TILES if region.dtype == "float32" else _TILES:
        if m == 16 or m < 2 * region.m:
            tile = ComputedTile(m=m, n=n, k=k, num_warps=warps, num_stages=stages)
            text = write_computed(region, tile, precision=precision)
            names = tuple(roles[name] for name in text.buffers)
            drafted = draft_text(text, names, kit.capability)
            ways.append(Way(name=tile.name, drafts=[drafted], tolerance=tolerance))
    return ways
