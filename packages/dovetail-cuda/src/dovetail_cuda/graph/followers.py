"""What an anchor takes with it: the values after it that are computed of its result element by element.

While an anchor waits, its result is read like a buffer that nobody has written yet, and everything after it is an
ordinary expression. A *follower* is such a value of which each element needs one element of the anchor; it also knows
where the elements of the anchor went, so that reshaping and transposing cost nothing but another place to store to.
When a follower is stored, the kernel of the anchor computes it and stores that alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from dovetail_cuda.graph.regions import Stored
from dovetail_cuda.lower.expr import Expr, Load, rewrite, walk
from dovetail_cuda.lower.index import Index, flatten, flatten_by, unflatten, unflatten_by
from dovetail_cuda.lower.indexing import find_axis
from dovetail_cuda.lower.pointwise import ELEMENTWISE
from dovetail_cuda.lower.tensors import Anchor, Tensor, make_buffer

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["Follower", "can_follow", "follow", "joins_again", "make_follower", "write_follower"]

_RESHAPES: Final = frozenset(("Flatten", "Reshape", "Squeeze", "Unsqueeze"))
_MOVES: Final = frozenset((*_RESHAPES, "Transpose"))
_MOST_LOADS: Final = 6
_MOST_NODES: Final = 64
"""What is more than this is a kernel of its own: the registers of an anchor's kernel are few."""
_MOST_STEPS: Final = 12
"""How many operators a value that is read several times may take to become one again."""

Coordinates = Sequence[Index]


@dataclass(frozen=True, kw_only=True)
class Follower:
    """A value that is computed of the result of an anchor."""

    anchor: Anchor
    name: str
    """What the result of the anchor is called."""
    result: Tensor
    """That result, as if it were in memory."""
    tensor: Tensor
    """What is computed of it."""
    spread: Callable[[Coordinates], Coordinates]
    """Where an element of the anchor lies in the tensor."""
    order: tuple[int, ...] = ()
    """The dimensions of the tensor from the outermost in memory to the innermost, where that was decided."""

    @property
    def plain(self) -> Follower:
        """The result itself."""
        return replace(self, tensor=self.result, spread=lambda at: at, order=self.anchor.order)


def make_follower(anchor: Anchor, name: str) -> Follower:
    """The result of an anchor, with what the anchor's own operator has follow."""
    result = replace(make_buffer(name, anchor.shape, anchor.dtype, anchor.order), buffer=None)
    return Follower(anchor=anchor, name=name, result=result, tensor=anchor.finish(result), spread=lambda at: at)


def can_follow(node: ir.Node) -> bool:
    """Whether an operator is of a kind that can follow."""
    return node.domain in ("", "ai.onnx") and node.op_type in ELEMENTWISE | _MOVES and len(node.outputs) == 1


def follow(before: Follower, node: ir.Node, made: Tensor, attributes: dict[str, Any]) -> Follower | None:
    """What an operator makes of a follower; None where an element needs more than its own, or it becomes too much."""
    spread = before.spread
    if node.op_type in _RESHAPES:
        shape = before.tensor.shape

        def spread(at: Coordinates) -> Coordinates:
            return unflatten(flatten(before.spread(at), shape), made.shape)

    elif node.op_type == "Transpose":
        rank = before.tensor.rank
        order = [find_axis(axis, rank) for axis in attributes.get("perm") or ()] or list(reversed(range(rank)))

        def spread(at: Coordinates) -> Coordinates:
            own = before.spread(at)
            return [own[axis] for axis in order]

    elif made.shape != before.tensor.shape:
        return None
    after = replace(before, tensor=made, spread=spread)
    return after if _is_element_by_element(after) else None


def _is_element_by_element(follower: Follower) -> bool:
    """Whether all that is read of the anchor for one of its elements is that element."""
    anchor, flat = follower.anchor, Index.variable("i", follower.tensor.count)
    value = follower.tensor.at(follower.spread(unflatten_by(flat, anchor.shape, anchor.order)))
    nodes = list(walk(value))
    loads = [each for each in nodes if isinstance(each, Load)]
    own = [each for each in loads if each.buffer == follower.name]
    is_one = all(each.index == flat and each.guard is None for each in own)
    return bool(own) and is_one and len(loads) <= _MOST_LOADS + len(own) and len(nodes) <= _MOST_NODES


def write_follower(follower: Follower, buffer: str, at: Coordinates, accumulated: Expr) -> Stored:
    """What is stored for an element of the anchor.

    Args:
        follower: What is stored.
        buffer: Where.
        at: The coordinates of the element in the anchor's result.
        accumulated: What the anchor's kernel has computed for it.
    """
    places = follower.spread(at)
    value = follower.tensor.at(places)
    known = rewrite(
        value, lambda each: accumulated if isinstance(each, Load) and each.buffer == follower.name else None
    )
    place = flatten_by(places, follower.tensor.shape, follower.order or range(len(places)))
    return Stored(buffer=buffer, dtype=follower.tensor.dtype, value=known, place=place)


def joins_again(value: ir.Value, order: Mapping[ir.Node, int]) -> bool:
    """Whether all that is made of a value becomes one value again by operators that can follow."""
    known, done = [value], set[Any]()
    for _ in range(_MOST_STEPS):
        waiting = [each for each in known if any(use.node not in done for use in each.uses())]
        if len(waiting) == 1 and waiting[0] is not value:
            return not any(each.is_graph_output() for each in known if each is not waiting[0])
        nodes = {use.node for each in waiting for use in each.uses()} - done
        node = min(nodes, key=lambda each: order[each], default=None)
        if node is None or not can_follow(node):
            return False
        done.add(node)
        known.append(node.outputs[0])
    return False
