"""Attention masks that need not be computed: those that add nothing, and those that only hide what comes later."""

from __future__ import annotations

from typing import Final

import numpy as np
import onnx_ir as ir

from dovetail.passes._graph import Array, constant_array
from dovetail.passes._match import int_attribute, producer_of, scalar_of

__all__ = ["is_causal", "is_nothing"]

_MAX_TRACE: Final = 6


def is_nothing(mask: ir.Value | None, keep: frozenset[str]) -> bool:
    """Whether a mask is zero everywhere, or is none."""
    if mask is None:
        return True
    array = constant_array(mask, keep)
    if array is not None:
        return not array.any()
    where = producer_of(mask, "Where")
    return where is not None and scalar_of(where.inputs[1], keep) == 0.0 and _is_true(where.inputs[0], keep)


def _is_true(value: ir.Value | None, keep: frozenset[str]) -> bool:
    """Whether a condition holds everywhere."""
    for _ in range(_MAX_TRACE):
        array = constant_array(value, keep)
        if array is not None:
            return bool(array.all())
        node = producer_of(value, "Expand", "Unsqueeze", "Reshape", "Identity")
        if node is None:
            return False
        value = node.inputs[0]
    return False


def is_causal(mask: ir.Value | None, keep: frozenset[str]) -> bool:
    """Whether a mask hides, for each query, exactly the keys after it; queries and keys are as many."""
    array = constant_array(mask, keep)
    if array is not None:
        return _is_causal_array(array)
    where = producer_of(mask, "Where")
    if where is None or mask is None:
        return False
    shown, hidden = where.inputs[1], where.inputs[2]
    if _is_lower(where.inputs[0], keep):
        return scalar_of(shown, keep) == 0.0 and _hides(scalar_of(hidden, keep), mask)
    equal = producer_of(where.inputs[0], "Equal")
    if equal is None or scalar_of(equal.inputs[1], keep) != 0.0 or not _is_lower(equal.inputs[0], keep):
        return False
    return scalar_of(hidden, keep) == 0.0 and _hides(scalar_of(shown, keep), mask)


def _is_causal_array(array: Array) -> bool:
    if array.ndim < 2 or array.shape[-1] != array.shape[-2] or array.dtype.kind != "f":
        return False
    lower = np.tril(np.ones(array.shape[-2:], dtype=bool))
    limit = np.finfo(array.dtype).min / 2
    return bool((array[..., lower] == 0).all() and (array[..., ~lower] <= limit).all())


def _is_lower(value: ir.Value | None, keep: frozenset[str]) -> bool:
    """Whether a value is true or one on and below the diagonal, and nothing above it."""
    for _ in range(_MAX_TRACE):
        node = producer_of(value, "Trilu", "Cast")
        if node is None:
            return False
        if node.op_type == "Trilu":
            is_plain = len(node.inputs) < 2 or node.inputs[1] is None or scalar_of(node.inputs[1], keep) == 0.0
            return is_plain and int_attribute(node, "upper", 1) == 0 and _is_ones(node.inputs[0], keep)
        value = node.inputs[0]
    return False


def _is_ones(value: ir.Value | None, keep: frozenset[str]) -> bool:
    array = constant_array(value, keep)
    if array is not None:
        return bool((array == 1).all())
    expand = producer_of(value, "Expand")
    if expand is not None:
        return scalar_of(expand.inputs[0], keep) == 1.0
    fill = producer_of(value, "ConstantOfShape")
    given = None if fill is None else fill.attributes.get("value")
    return given is not None and bool((given.as_tensor().numpy() == 1).all())


def _hides(number: float | None, mask: ir.Value) -> bool:
    """Whether a number is so low that no score added to it is seen."""
    if number is None or mask.dtype not in (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE):
        return False
    return number <= float(np.finfo(mask.dtype.numpy()).min) / 2
