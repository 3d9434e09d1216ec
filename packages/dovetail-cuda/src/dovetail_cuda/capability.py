"""Which nodes this back end takes: operators of its registry, over types that are known and shapes that have names.

Dimensions that vary are taken by their names alone, for only the build knows the profile: what its bounds leave open is
refused there, with the reason, and goes to the next provider.
"""

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
            if position not in node.constants | node.shape_inputs:
                return f"input {position} must be known when the plan is built, or computed of shapes"
        elif dtype not in TYPES:
            return f"it has no type {dtype}"
        elif shape is None or not all(_is_named(size) for size in shape):
            return f"the shape of input {position} must be known before a run"
    return _try_lower(node, kernel) if _is_fixed(node) and not kernel.host_inputs else None


def _is_named(size: int | str) -> bool:
    """Whether a dimension is a number, or varies under a name."""
    return isinstance(size, int) or not size.startswith("?")


def _is_fixed(node: NodeView) -> bool:
    return all(isinstance(size, int) for shape in node.input_shapes for size in shape or ())


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
