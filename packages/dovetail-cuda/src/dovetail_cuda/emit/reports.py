"""What a plan tells of a region: what it reads and writes at the border, its result, and how much work it is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from dovetail.provider.costs import count_operations
from dovetail.provider.interfaces import NodeReport
from dovetail_cuda.graph.plan import PartitionPlan
from dovetail_cuda.graph.regions import ConvRegion, ElementRegion, ProductRegion, Region, Stored
from dovetail_cuda.lower.sizes import is_fixed

__all__ = ["describe_region"]

_PRODUCTS: Final = ("Attention", "Conv", "Einsum", "Gemm", "MatMul", "MultiHead")
"""Operators whose work is not told by the size of their results."""


def describe_region(
    region: Region, plan: PartitionPlan, *, name: str, tactic: str, time_us: float | None
) -> NodeReport:
    """The report of a region, without the regions that it follows."""
    buffers = list(dict.fromkeys(region.buffers))
    made = [stored.buffer for stored in _list_stored(region)]
    first = plan.buffers[made[0]] if made else None
    return NodeReport(
        name=name,
        op=" ".join(region.ops[:8]),
        layers=list(region.layers),
        made_by="region" if len(region.layers) > 1 else "",
        tactic=tactic,
        time_us=time_us,
        reads=[at for at, each in enumerate(plan.inputs) if each in buffers and each not in made],
        writes=[at for at, each in enumerate(plan.outputs) if each in made],
        dtype="" if first is None else first.dtype,
        shape=None if first is None else [size if is_fixed(size) else None for size in first.shape],
        flops=_count_operations(region, plan),
        bytes=_count_bytes(buffers, plan),
    )


def _list_stored(region: Region) -> Sequence[Stored]:
    if isinstance(region, ElementRegion):
        return region.stored
    return [region.stored] if isinstance(region, ProductRegion | ConvRegion) else []


def _count_bytes(buffers: Sequence[str], plan: PartitionPlan) -> int | None:
    """The sizes of all buffers; None where one varies."""
    found = [plan.buffers[name] for name in buffers if name in plan.buffers]
    is_known = all(is_fixed(size) for buffer in found for size in buffer.shape)
    return sum(buffer.size_bytes for buffer in found) if is_known else None


def _count_operations(region: Region, plan: PartitionPlan) -> int | None:
    """Multiplications and additions of a product or convolution; else those of the operators over the results."""
    if isinstance(region, ProductRegion):
        return _multiply(2, region.batch, region.m, region.n, region.k)
    if isinstance(region, ConvRegion):
        return _multiply(2, *region.conv.whole_shape, *region.conv.weight.shape[1:])
    shapes = [plan.buffers[stored.buffer].shape for stored in _list_stored(region)]
    if not shapes or not all(is_fixed(size) for shape in shapes for size in shape):
        return None
    largest = max(shapes, key=math.prod)
    if any(op.startswith(_PRODUCTS) for op in region.ops):
        return None
    counts = [count_operations(op, [largest], largest, {}) for op in region.ops]
    return None if None in counts else sum(count or 0 for count in counts)


def _multiply(*sizes: int) -> int | None:
    return math.prod(sizes) if all(is_fixed(size) for size in sizes) else None
