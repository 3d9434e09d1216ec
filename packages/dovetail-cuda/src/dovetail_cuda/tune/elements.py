"""The way of regions that go element by element: one generated kernel, cut by rule."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail_cuda.compile.source import write_kernel
from dovetail_cuda.graph.regions import ElementRegion
from dovetail_cuda.tune.drafts import draft_text
from dovetail_cuda.tune.element_tiles import choose_tile
from dovetail_cuda.tune.kit import Kit
from dovetail_cuda.tune.questions import KernelDraft, Place, Question, Task, Way
from dovetail_cuda.tune.turns import turn_region

__all__ = ["make_element_draft", "make_element_task"]


def make_element_task(region: ElementRegion, kit: Kit) -> Task:
    """The task of a region; there is nothing to choose, so that nothing is tried."""
    draft, buffers = make_element_draft(region, kit)
    way = Way(name=f"generated, {draft.grid[0]} blocks of {draft.request.num_warps} warps", drafts=[draft])
    text = f"elements {draft.request.make_key()} in {draft.grid[0]} blocks"
    question = Question(text=text, operands={}, make_ways=lambda: [way])
    places = {role: Place(buffer=buffer) for role, buffer in zip(draft.roles, buffers, strict=True)}
    return Task(region=region, question=question, places=places)


def make_element_draft(region: ElementRegion, kit: Kit) -> tuple[KernelDraft, Sequence[str]]:
    """The kernel of a region over the roles ``p0``, ``p1`` and so on, and the buffer of each of them."""
    turned = turn_region(region)
    text = write_kernel(turned, choose_tile(turned, kit.multiprocessors))
    draft = draft_text(text, text.parameters, kit.capability)
    return draft, text.buffers
