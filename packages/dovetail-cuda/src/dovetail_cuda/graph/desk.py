"""What the planner does for those who make regions of anchors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from dovetail_cuda.graph.followers import Follower
from dovetail_cuda.graph.regions import Region
from dovetail_cuda.lower.tensors import Lowered, Tensor

__all__ = ["Desk"]

T = TypeVar("T")


class Desk(Protocol):
    """The planner, for those who make regions."""

    def store_operand(self, name: str, operand: Tensor, order: Sequence[int] = ()) -> Tensor:
        """Have a region before this one write a tensor to memory, row by row with its dimensions in an order."""

    def pack_weight(self, source: str, recipe: str) -> str | None:
        """The buffer of a weight in another form, which the plan stores; None where it is no weight."""

    def store_temporary(self, name: str, made: Lowered, op: str) -> Tensor:
        """The same for anything that is lowered."""

    def make_region(self, follower: Follower, buffer: str, layers: tuple[str, ...], ops: tuple[str, ...]) -> Region:
        """The region that computes an anchor and stores what follows it."""

    def collect(self, make: Callable[[], T]) -> tuple[list[Region], T]:
        """The regions that something has the planner write, which do not become part of the plan; and its result."""

    def find_constant(self, buffer: str) -> object | None:
        """The numbers of a buffer that are the same in every run; None where they are not."""
