"""Which nodes this back end takes: operators of its registry, over types and shapes that are known."""

from __future__ import annotations

import math
from typing import Any

from dovetail.errors import DovetailError
from dovetail.provider.interfaces import Claim, NodeView, claim_by_registry
from dovetail_cuda.lower.registry import load_registry
from dovetail_cuda.lower.tensors import make_buffer
from dovetail_cuda.lower.types import TYPES, size_of

__all__ = ["claim_node"]


def claim_node(node: NodeView) -> Claim:
    """Whether a node is taken, and if not, why."""
    claim = claim_by_registry(load_registry(), node)
    if not claim.taken:
        return claim
    reason = _find_reason(node)
    return Claim(taken=reason is None, reason=reason, cost_bytes=0 if reason else _count_weight_bytes(node))


def _count_weight_bytes(node: NodeView) -> int:
    """What its weights take on the device."""
    found = [(node.input_types[number], node.input_shapes[number]) for number in node.constants]
    return sum(
        math.prod(int(size) for size in shape) * size_of(dtype) for dtype, shape in found if dtype in TYPES and shape
    )


def _find_reason(node: NodeView) -> str | None:
    kernel = load_registry().find(node.op, node.domain, node.opset)
    if kernel is None:
        return "it has no such operator"
    for position, (dtype, shape) in enumerate(zip(node.input_types, node.input_shapes, strict=True)):
        if dtype is None:
            continue
        if position in kernel.host_inputs:
            if position not in node.constants:
                return f"input {position} must be known when the plan is built"
        elif dtype not in TYPES:
            return f"it has no type {dtype}"
        elif shape is None or not all(isinstance(size, int) for size in shape):
            return f"the shape of input {position} must be known when the plan is built"
    return None if kernel.host_inputs else _try_lower(node, kernel)


def _try_lower(node: NodeView, kernel: Any) -> str | None:
    """What the operator's own function has against the node; it computes nothing."""
    inputs = [
        None if dtype is None else make_buffer(f"x{number}", [int(size) for size in shape or ()], dtype)
        for number, (dtype, shape) in enumerate(zip(node.input_types, node.input_shapes, strict=True))
    ]
    try:
        kernel.bind(node.attributes, len(node.output_types))(*inputs)
    except DovetailError as error:
        return error.what
    except (ValueError, IndexError, TypeError) as error:
        return f"its shapes or attributes do not fit: {error}"
    return None
