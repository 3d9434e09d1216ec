"""The memory that a session lets its nodes take (``session.resource_cuda_partitioning_settings``).

ONNX Runtime keeps this account for one execution provider only, that of CUDA, so it is kept here: a node costs the
weights that no node before it read, and the results whose size is known. Nothing is taken from the first node on that
does not fit; layers of plugins are, because nobody else runs them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import onnx_ir as ir

import dovetail
from onnxruntime_ep_dovetail.claim.groups import inner_nodes, reads_of
from onnxruntime_ep_dovetail.graph.values import is_number

__all__ = ["find_over_budget"]


def find_over_budget(supports: Sequence[dovetail.Support], limit_bytes: int) -> set[ir.Node]:
    """The nodes that no longer fit, of those that somebody takes.

    Args:
        supports: Every node of the graph, in topological order.
        limit_bytes: What all of them may cost.
    """
    spent, known = 0, set[ir.Value]()
    late: set[ir.Node] = set()
    for support in supports:
        if support.provider is None:
            continue
        spent += sum(_num_bytes(value) for value in _costs(support.node, known))
        if spent > limit_bytes and not support.is_plugin:
            late.add(support.node)
    return late


def _costs(node: ir.Node, known: set[ir.Value]) -> Iterator[ir.Value]:
    """The weights that a node reads first, and what it makes, bodies included."""
    inside = inner_nodes(node)
    weights = {value for value in reads_of(node) if value.const_value is not None}
    weights |= {value for one in inside for value in one.inputs if value is not None and value.const_value is not None}
    yield from weights - known
    known |= weights
    yield from (value for one in (node, *inside) for value in one.outputs if value.name)


def _num_bytes(value: ir.Value) -> int:
    if value.dtype is None or not is_number(value.dtype):
        return 0
    if value.const_value is not None:
        return value.const_value.size * value.dtype.bitwidth // 8
    if value.shape is None or not value.shape.is_static():
        return 0
    return math.prod(value.shape.numpy()) * value.dtype.bitwidth // 8
