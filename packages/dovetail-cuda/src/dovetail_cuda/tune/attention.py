"""The ways of attention: one kernel in several tiles, with keys split over programs, and the steps one by one."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np

from dovetail_cuda.compile.attention import PARTS, AttentionTile, write_attention
from dovetail_cuda.graph.attention import AttentionRegion
from dovetail_cuda.graph.masks import find_places
from dovetail_cuda.graph.regions import ElementRegion
from dovetail_cuda.lower.expr import BATCH, COLUMN, ROW, Accumulator, Load, apply, convert, list_loads, load
from dovetail_cuda.lower.index import Index, flatten
from dovetail_cuda.lower.tensors import Rows, refuse
from dovetail_cuda.lower.types import size_of
from dovetail_cuda.tune.drafts import draft_text
from dovetail_cuda.tune.elements import make_element_draft
from dovetail_cuda.tune.kit import Kit
from dovetail_cuda.tune.products import TF32_TOLERANCE
from dovetail_cuda.tune.questions import KernelDraft, Operand, Place, Question, Task, Temporary, Way
from dovetail_cuda.tune.steps import list_step_ways

__all__ = ["list_tiles", "make_attention_task"]

_TILES: Final = (
    (128, 256, 4, 1),
    (64, 256, 4, 1),
    (32, 256, 4, 1),
    (16, 256, 4, 1),
    (128, 64, 8, 3),
    (128, 64, 4, 3),
    (128, 32, 4, 3),
    (64, 128, 4, 3),
    (64, 64, 4, 3),
    (64, 64, 4, 2),
    (64, 32, 4, 3),
    (32, 128, 4, 2),
    (16, 128, 4, 1),
    (16, 64, 4, 2),
    (16, 32, 4, 3),
)
"""Queries, keys, warps and stages."""
_FLOAT_TILES: Final = ((64, 32, 4, 2), (32, 32, 4, 2), (16, 64, 4, 2), (16, 32, 4, 2))
"""The same for float32, whose products take more registers."""
_MOST_LANES: Final = 128 * 128
"""Queries times features of a program, which it holds in registers."""
_LEAST_PART: Final = 32
"""Keys of a program that shares them with others."""
_SHARED_BYTES: Final = 220 << 10
_REFERENCE_OPS: Final = 1 << 31
"""Attention of up to so many multiplications is compared with NumPy's; larger ones with each other."""


def make_attention_task(region: AttentionRegion, kit: Kit) -> Task:
    """The task of attention."""
    roles = {buffer: f"p{number}" for number, buffer in enumerate(region.operands)}
    counts = _count_elements(region)
    question = Question(
        text=_describe(region, kit),
        operands={
            role: Operand(
                count=counts[buffer],
                dtype=region.operands[buffer],
                kind="output" if buffer == region.buffer else kit.find_kind(buffer),
            )
            for buffer, role in roles.items()
        },
        make_ways=partial(_list_ways, region, kit, roles),
        reference=partial(_compute_reference, region, roles),
    )
    return Task(region=region, question=question, places={role: Place(buffer=name) for name, role in roles.items()})


def _describe(region: AttentionRegion, kit: Kit) -> str:
    """Everything that decides the time: the kernel has all numbers and no names."""
    text = write_attention(region, AttentionTile(queries=16, keys=16, num_warps=4), _precision(region, kit)).text
    shape = f"{region.batch}x{region.queries}x{region.keys}x{region.features}"
    causal = "" if region.causal is None else f" causal {region.causal}"
    return f"attention {shape} {region.dtype}{causal} {hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _precision(region: AttentionRegion, kit: Kit) -> str:
    return "tf32" if kit.allows_tf32 and region.dtype == "float32" else "ieee"


def _count_elements(region: AttentionRegion) -> dict[str, int]:
    """How far each buffer is read or written."""
    counts = {region.buffer: region.stored.place.bounds[1] + 1}
    masks = [] if region.whole_score is None else list_loads(region.whole_score)
    for each in (*region.loads, *masks):
        counts[each.buffer] = max(counts.get(each.buffer, 0), each.index.bounds[1] + 1)
    return counts


def _list_ways(region: AttentionRegion, kit: Kit, roles: Mapping[str, str]) -> list[Way]:
    tolerance = TF32_TOLERANCE if _precision(region, kit) == "tf32" else 0.0
    tiles = [_make_tile_way(region, kit, roles, tile, tolerance) for tile in list_tiles(region, kit.multiprocessors)]
    return [*tiles, *list_step_ways(region.steps, kit, roles, tolerance)]


# one kernel


def list_tiles(region: AttentionRegion, multiprocessors: int) -> list[AttentionTile]:
    """The tiles worth trying: those that do not waste most of themselves, and fit shared memory and registers."""
    sizes = [_power_above(size) for size in (region.queries, region.keys, max(region.features, region.columns))]
    found = []
    for queries, keys, warps, stages in _FLOAT_TILES if region.dtype == "float32" else _TILES:
        is_wasteful = queries > max(sizes[0], 16) or keys > max(sizes[1], 64)
        shared = (queries + 2 * stages * keys) * sizes[2] * size_of(region.dtype)
        if not is_wasteful and shared <= _SHARED_BYTES and queries * sizes[2] <= _MOST_LANES:
            tile = AttentionTile(queries=queries, keys=keys, num_warps=warps, num_stages=stages)
            found += [replace(tile, num_parts=parts) for parts in _list_parts(region, tile, multiprocessors)]
    return found


def _list_parts(region: AttentionRegion, tile: AttentionTile, multiprocessors: int) -> list[int]:
    """Into how many parts the keys may go: more than one where there are multiprocessors without work."""
    programs = region.batch * -(-region.queries // tile.queries)
    most = min(2 * multiprocessors // programs, region.keys // max(tile.keys, _LEAST_PART))
    return [1, *(parts for parts in (2, 4, 8, 16, 32) if parts <= most)]


def _make_tile_way(
    region: AttentionRegion, kit: Kit, roles: Mapping[str, str], tile: AttentionTile, tolerance: float
) -> Way:
    text = write_attention(region, tile, _precision(region, kit))
    names = {**roles, **{part: part for part in PARTS}}
    draft = draft_text(text, tuple(names[buffer] for buffer in text.buffers), kit.capability)
    if tile.num_parts == 1:
        return Way(name=tile.name, drafts=[draft], tolerance=tolerance)
    rows = 4 * tile.num_parts * region.batch * region.queries
    sizes = (rows * region.columns, rows, rows)
    return Way(
        name=tile.name,
        drafts=[draft, _draft_join(region, tile.num_parts, kit, names)],
        temporaries={part: Temporary(size_bytes=size) for part, size in zip(PARTS, sizes, strict=True)},
        tolerance=tolerance,
    )


def _draft_join(region: AttentionRegion, num_parts: int, kit: Kit, names: Mapping[str, str]) -> KernelDraft:
    """What puts the parts together, as a row of parts for each element."""
    rows = Rows((region.batch, region.queries, region.columns, num_parts), (3,))
    b, i, d, part = rows.coordinates
    row = flatten((part, b, i), (num_parts, region.batch, region.queries))
    mixed, top, total = (
        load(buffer, index, None, "float32")
        for buffer, index in zip(PARTS, (row * region.columns + d, row, row), strict=True)
    )
    weight = apply("tl.exp2({0} - {1})", top, rows.reduce("max", top), dtype="float32")
    sums = [rows.reduce("sum", apply("{0} * {1}", weight, each, dtype="float32")) for each in (mixed, total)]
    text = "tl.where({1} == 0, 0.0, {0} / {1})" if region.zeroes_blind else "{0} / {1}"
    stored = region.store(b, i, d, convert(apply(text, *sums, dtype="float32"), region.dtype))
    draft, buffers = make_element_draft(ElementRegion(stored=(stored,), count=rows.num_rows, rows=rows), kit)
    return replace(draft, roles=tuple(names[buffer] for buffer in buffers))


# what is right


def _compute_reference(
    region: AttentionRegion, roles: Mapping[str, str], arrays: Mapping[str, Any]
) -> Sequence[Any] | None:
    """Attention by NumPy, where nothing is computed before it and that does not take long."""
    exprs = (region.query, region.key, region.value)
    is_long = region.batch * region.queries * region.keys * region.features > _REFERENCE_OPS
    is_plain = region.score is None and isinstance(region.stored.value, Accumulator)
    if not is_plain or is_long or any(not isinstance(each, Load) or each.guard for each in exprs):
        return None
    sizes = ((region.queries, region.features), (region.keys, region.features), (region.keys, region.columns))
    query, key, value = (
        _read(each, arrays[roles[each.buffer]], {"b": region.batch, row: size[0], "d": size[1]})
        for each, row, size in zip(exprs, "ijj", sizes, strict=True)
        if isinstance(each, Load)
    )
    scores = query @ key.swapaxes(1, 2) * np.float32(region.scale)
    if region.causal is not None:
        seen = np.arange(region.keys) <= np.arange(region.queries)[:, None] + region.causal
        scores = np.where(seen, scores, -np.inf)
    powers = np.exp(scores - scores.max(2, keepdims=True))
    mixed = (powers / powers.sum(2, keepdims=True)) @ value
    result = {BATCH: region.batch, ROW: region.queries, COLUMN: region.columns}
    made = np.zeros(region.stored.place.bounds[1] + 1, np.float32)
    made[_find_places(region.stored.place, result)] = mixed
    return [made.astype(np.dtype(region.dtype))]


def _read(expr: Load, array: Any, sizes: Mapping[str, int]) -> Any:
    """The elements of a buffer that an expression reads, by its variables."""
    return array.astype(np.float32)[_find_places(expr.index, sizes)]


def _find_places(index: Index, sizes: Mapping[str, int]) -> Any:
    grids = np.meshgrid(*(np.arange(size) for size in sizes.values()), indexing="ij", sparse=True)
    places = find_places(index, dict(zip(sizes, grids, strict=True)))
    if places is None:
        raise refuse("an index that is read is known to nobody")
    return np.broadcast_to(places, tuple(sizes.values()))


def _power_above(number: int) -> int:
    return 1 << max(number - 1, 0).bit_length()
