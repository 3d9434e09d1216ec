"""Launches whose sizes vary: buffers, grids and arguments as expressions that are worked out when shapes are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dovetail.expr import encode_expr
from dovetail.provider.memory.arena import Span, align, plan_offsets
from dovetail_cuda.choose.memory import find_lives
from dovetail_cuda.emit.kernels import KernelTable
from dovetail_cuda.graph.plan import Buffer, PartitionPlan
from dovetail_cuda.lower.sizes import expr_from_size, greatest, is_fixed
from dovetail_cuda.lower.tensors import refuse
from dovetail_cuda.run.payload import MAX_GRID
from dovetail_cuda.run.variants import Amount, BufferTemplate, KernelTemplate
from dovetail_cuda.tune.questions import Draft, KernelDraft, Place

__all__ = ["Step", "make_amount", "make_buffers", "make_launch"]

_MOST_BYTES: Final = 2**46
"""No memory of a device is as large."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One launch of the way that was chosen for a task, over buffers by name."""

    draft: Draft
    places: Sequence[Place]
    layers: Sequence[str]


def make_amount(size: int) -> Amount:
    """A size as a plan stores it."""
    return size if is_fixed(size) else encode_expr(expr_from_size(size))


def make_launch(step: Step, kernels: KernelTable, numbers: Mapping[str, int]) -> KernelTemplate:
    """The template of a launch."""
    draft = step.draft
    if not isinstance(draft, KernelDraft):
        raise refuse("sizes that vary are for kernels only")
    if any(greatest(size) > most for size, most in zip(draft.grid[1:], MAX_GRID[1:], strict=True)):
        raise refuse(f"the largest shapes of the profile make more than {MAX_GRID[1]} products at once")
    offsets = [place.offset for place in step.places]
    x, y, z = (make_amount(size) for size in draft.grid)
    return KernelTemplate(
        kernel=kernels.find(draft.request),
        grid=(x, y, z),
        buffers=[numbers[place.buffer] for place in step.places],
        offsets=[make_amount(offset) for offset in offsets] if any(offsets) else [],
        sizes=[make_amount(size) for size in draft.sizes],
        layers=list(step.layers),
    )


def make_buffers(
    plan: PartitionPlan, uses: Sequence[Sequence[str]], is_open: bool
) -> tuple[dict[str, BufferTemplate], int | None]:
    """The buffers by name, and the arena that is enough for all shapes; None where shapes have no bounds.

    Places are found for the largest size of each buffer, so that they are the same for all shapes.
    """
    lives = find_lives(uses)
    inside = [name for name in plan.buffers if name in lives and plan.buffers[name].kind == "temporary"]
    offsets: dict[str, int] = {}
    arena_bytes = None
    if not is_open:
        spans = [Span(greatest(plan.buffers[name].size_bytes), *lives[name]) for name in inside]
        if sum(span.size_bytes for span in spans) > _MOST_BYTES:
            raise refuse("shapes have no bounds, or so large ones that no device has the memory for them")
        found, total = plan_offsets(spans)
        offsets, arena_bytes = dict(zip(inside, found, strict=True)), align(total)
    table = {
        name: _describe(name, buffer, plan, offsets.get(name), lives[name])
        for name, buffer in plan.buffers.items()
        if name in lives
    }
    return table, arena_bytes


def _describe(
    name: str, buffer: Buffer, plan: PartitionPlan, offset: int | None, life: tuple[int, int]
) -> BufferTemplate:
    size = make_amount(buffer.size_bytes)
    match buffer.kind:
        case "input":
            return BufferTemplate(kind="input", size_bytes=size, number=plan.inputs.index(name))
        case "output":
            return BufferTemplate(kind="output", size_bytes=size, number=plan.outputs.index(name))
        case "weight":
            return BufferTemplate(kind="weight", size_bytes=size, name=name)
        case "zeroed":
            raise refuse("memory that is zero between runs is of one size")
        case _:
            return BufferTemplate(kind="arena", size_bytes=size, offset=offset, first=life[0], last=life[1])
