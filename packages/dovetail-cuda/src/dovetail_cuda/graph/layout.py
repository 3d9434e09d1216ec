"""How values lie in memory: the order of their dimensions, from the outermost to the innermost.

Images that convolutions and pooling read lie with their channels last; what crosses the border lies as the plan says;
operands of products lie row by row. Everything else lies as what it is made of, so that reading and writing go along
memory together.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from dovetail_cuda.lower.expr import Load, walk
from dovetail_cuda.lower.images import NHWC_DOMAIN, find_image, turn_first
from dovetail_cuda.lower.index import Index, Var
from dovetail_cuda.lower.indexing import reshape_to
from dovetail_cuda.lower.matrices import find_matrix
from dovetail_cuda.lower.sizes import estimate, greatest, may_exceed
from dovetail_cuda.lower.tensors import CHANNELS_LAST, Tensor

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["can_read", "choose_order"]

_PRODUCTS: Final = frozenset(("Gemm", "MatMul"))
_WINDOWED: Final = frozenset(
    ("AveragePool", "Conv", "ConvTranspose", "GlobalAveragePool", "GlobalMaxPool", "LpPool", "MaxPool")
)
"""Operators that read images best with their channels last in memory, whatever the order of their dimensions is."""


def choose_order(value: ir.Value, made: Tensor) -> tuple[int, ...]:
    """The order of the dimensions of a value that is stored."""
    plain, readers = tuple(range(made.rank)), [use.node for use in value.uses()]
    if value.is_graph_output() or made.rank not in CHANNELS_LAST:
        return plain
    if any(reader.op_type in _WINDOWED and reader.domain != NHWC_DOMAIN for reader in readers):
        return CHANNELS_LAST[made.rank]
    return plain if any(reader.op_type in _PRODUCTS | _WINDOWED for reader in readers) else _follow(made)


def _follow(made: Tensor) -> tuple[int, ...]:
    """The order of dimensions in the largest buffer that is read."""
    plain = tuple(range(made.rank))
    element = made.at([Index.variable(f"d{axis}", size) for axis, size in enumerate(made.shape)])
    loads = [each for each in walk(element) if isinstance(each, Load)]
    if not loads:
        return plain
    index = max(loads, key=lambda each: greatest(each.index.bounds[1])).index
    factors = {atom.name: factor for atom, factor in index.terms if isinstance(atom, Var)}
    steps = [factors.get(f"d{axis}", 0) for axis in plain]
    is_long = [may_exceed(size, 1) for size in made.shape]
    if len(factors) < len(index.terms) or not all(step for step, long in zip(steps, is_long, strict=True) if long):
        return plain
    return tuple(sorted(plain, key=lambda axis: -estimate(steps[axis]) if is_long[axis] else -math.inf))


def can_read(readers: Collection[ir.Node], made: Tensor) -> bool:
    """Whether operators that read each element many times read a tensor where it lies."""
    ops = {reader.op_type for reader in readers}
    if ops <= _PRODUCTS:
        return made.rank > 1 and find_matrix(made) is not None
    if ops != {"Conv"} or made.rank not in CHANNELS_LAST:
        return False
    domains = {reader.domain for reader in readers}
    return all(_is_image(turn_first(made) if domain == NHWC_DOMAIN else made) for domain in domains)


def _is_image(made: Tensor) -> bool:
    return find_image(made if made.rank == 4 else reshape_to(made, (*made.shape[:2], 1, made.shape[2]))) is not None
