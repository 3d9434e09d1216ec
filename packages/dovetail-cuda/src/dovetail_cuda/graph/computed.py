"""Products whose right factor is computed where it is read, such as weights that are packed into a few bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dovetail_cuda.graph.desk import Desk
from dovetail_cuda.graph.followers import Follower, write_follower
from dovetail_cuda.graph.regions import Region, Stored
from dovetail_cuda.lower.expr import COLUMN, ROW, Expr, Load, accumulator, list_loads
from dovetail_cuda.lower.index import Index, unflatten
from dovetail_cuda.lower.packed import ComputedProductTensor
from dovetail_cuda.lower.tensors import refuse

__all__ = ["INNER", "ComputedRegion", "make_computed_region"]

INNER = "d"
"""The variable of what is summed over."""


@dataclass(frozen=True, kw_only=True)
class ComputedRegion(Region):
    """(M, K) times (K, N): expressions of the row, the column, and what is summed over."""

    m: int
    n: int
    k: int
    dtype: str
    left: Load
    right: Expr
    stored: Stored
    """What follows, of the accumulator."""
    rows: Region
    """The same as one sum for each element."""
    steps: tuple[Region, ...]
    """The same with the right factor in memory."""

    @property
    def loads(self) -> list[Load]:
        """Everything that is read."""
        return [each for expr in (self.left, self.right, self.stored.value) for each in list_loads(expr)]

    @property
    def operands(self) -> dict[str, str]:
        """The buffers that are read, and the result, with their types."""
        return {**{each.buffer: each.dtype for each in self.loads}, self.stored.buffer: self.stored.dtype}

    @property
    def buffers(self) -> Sequence[str]:
        """What is read, and the result."""
        return list(self.operands)


def make_computed_region(
    desk: Desk, follower: Follower, buffer: str, layers: tuple[str, ...], ops: tuple[str, ...]
) -> Region:
    """The region of such a product; a left factor that does not lie in memory is stored first."""
    made = follower.anchor
    if not isinstance(made, ComputedProductTensor):
        raise refuse("no such product")
    (m, k), n = made.left.shape, made.right.shape[1]
    row, column, inner = (Index.variable(*each) for each in ((ROW, m), (COLUMN, n), (INNER, k)))
    left = made.left.at((row, inner))
    if not isinstance(left, Load) or left.guard is not None:
        made = made.with_left(desk.store_operand(f"{buffer}.left", made.left))
        left = made.left.at((row, inner))
    if not isinstance(left, Load):
        raise refuse("a factor of a product lies nowhere")
    settled = replace(follower, anchor=made)
    plain = replace(settled, anchor=made.product.plain)
    whole = replace(settled, anchor=made.product)
    before, last = desk.collect(lambda: desk.make_region(whole, buffer, layers, ops))
    at = unflatten(row * n + column, made.shape)
    return ComputedRegion(
        m=m,
        n=n,
        k=k,
        dtype=made.dtype,
        left=left,
        right=made.right.at((inner, column)),
        stored=write_follower(settled, buffer, at, accumulator(made.dtype)),
        rows=desk.make_region(plain, buffer, layers, ops),
        steps=(*before, last),
        layers=layers,
        ops=ops,
    )
