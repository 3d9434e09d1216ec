"""How much work an operator does: operations by its shapes, and bytes by its tensors. Pure, and for people.

Counts are those of the textbook: a multiplication and an addition are two operations, whatever a kernel does to save
some. They stand in reports and rooflines; nothing is chosen by them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from dovetail.element_types import BY_NAME

__all__ = ["Sizes", "count_bytes", "count_operations"]

Sizes = Sequence[int] | None
"""The sizes of a tensor; None where they are not known, or the tensor is absent."""

_MOVES: Final = frozenset(
    [
        "Cast",
        "CastLike",
        "Concat",
        "ConstantOfShape",
        "DepthToSpace",
        "Expand",
        "EyeLike",
        "Flatten",
        "Gather",
        "GatherElements",
        "GatherND",
        "Identity",
        "Pad",
        "Range",
        "Reshape",
        "ReverseSequence",
        "ScatterElements",
        "ScatterND",
        "Shape",
        "Size",
        "Slice",
        "SpaceToDepth",
        "Split",
        "Squeeze",
        "Tile",
        "Transpose",
        "Unsqueeze",
        "Where",
    ]
)
"""Operators that move elements and compute none."""
_ONE_EACH: Final = frozenset(
    [
        "Abs",
        "Add",
        "And",
        "BitShift",
        "Ceil",
        "Clip",
        "Div",
        "Equal",
        "Floor",
        "Greater",
        "GreaterOrEqual",
        "IsInf",
        "IsNaN",
        "LeakyRelu",
        "Less",
        "LessOrEqual",
        "Max",
        "Min",
        "Mod",
        "Mul",
        "Neg",
        "Not",
        "Or",
        "PRelu",
        "Pow",
        "Reciprocal",
        "Relu",
        "Round",
        "Sign",
        "Sqrt",
        "Sub",
        "Sum",
        "ThresholdedRelu",
        "Xor",
    ]
)
_SEVERAL_EACH: Final = {
    "Acos": 8, "Asin": 8, "Atan": 8, "Celu": 4, "Cos": 8, "DequantizeLinear": 2, "Elu": 3, "Erf": 8, "Exp": 4,
    "Gelu": 12, "HardSigmoid": 3, "HardSwish": 4, "Log": 4, "Mish": 12, "QuantizeLinear": 3, "Selu": 4, "Sigmoid": 4,
    "Sin": 8, "Softplus": 6, "Softsign": 3, "Swish": 5, "Tan": 8, "Tanh": 6,
}  # fmt: skip
"""Operators of one input with their operations an element, where a usual approximation is counted."""
_BY_INPUT: Final = {
    "AveragePool": 1, "BatchNormalization": 2, "GlobalAveragePool": 1, "GlobalMaxPool": 1, "GroupNormalization": 8,
    "InstanceNormalization": 8, "LayerNormalization": 8, "LogSoftmax": 6, "LpNormalization": 4,
    "RMSNormalization": 5, "RotaryEmbedding": 3, "SimplifiedLayerNormalization": 5, "Softmax": 6,
}  # fmt: skip
"""Operators whose work goes with the elements of their first input."""


def count_operations(op: str, inputs: Sequence[Sizes], output: Sizes, attributes: Mapping[str, Any]) -> int | None:
    """The operations of one node; None where the operator or a shape that it needs is not known.

    >>> count_operations("MatMul", [(8, 64), (64, 16)], (8, 16), {})
    16384
    """
    if op in _MOVES:
        return 0
    first = inputs[0] if inputs else None
    if op in _PRODUCTS and inputs:
        return _PRODUCTS[op](inputs, output, attributes)
    if op in _BY_INPUT or op.startswith("Reduce"):
        return None if first is None else math.prod(first) * _BY_INPUT.get(op, 1)
    if op in _ONE_EACH or op in _SEVERAL_EACH:
        return None if output is None else math.prod(output) * _SEVERAL_EACH.get(op, 1)
    return _count_pool(output, attributes) if op in ("MaxPool", "LpPool") else None


def count_bytes(dtype: str, sizes: Sizes) -> int | None:
    """The bytes of a tensor, two four-bit elements to a byte; None where something is not known.

    >>> count_bytes("float16", (2, 3)), count_bytes("int4", (3,)), count_bytes("object", (3,))
    (12, 2, None)
    """
    element = BY_NAME.get(dtype)
    if element is None or sizes is None or min(sizes, default=0) < 0:
        return None
    return (math.prod(sizes) * element.bits + 7) // 8


def _count_conv(inputs: Sequence[Sizes], output: Sizes, attributes: Mapping[str, Any]) -> int | None:
    weights = inputs[1] if len(inputs) > 1 else None
    return None if weights is None or output is None else 2 * math.prod(output) * math.prod(weights[1:])


def _count_deconv(inputs: Sequence[Sizes], output: Sizes, attributes: Mapping[str, Any]) -> int | None:
    first, weights = inputs[0], inputs[1] if len(inputs) > 1 else None
    return None if first is None or weights is None else 2 * math.prod(first) * math.prod(weights[1:])


def _count_matmul(inputs: Sequence[Sizes], output: Sizes, attributes: Mapping[str, Any]) -> int | None:
    first = inputs[0]
    return None if not first or output is None else 2 * math.prod(output) * first[-1]


def _count_gemm(inputs: Sequence[Sizes], output: Sizes, attributes: Mapping[str, Any]) -> int | None:
    first = inputs[0]
    if not first or len(first) != 2 or output is None:
        return None
    return 2 * math.prod(output) * first[0 if attributes.get("transA") else 1]


def _count_attention(inputs: Sequence[Sizes], output: Sizes, attributes: Mapping[str, Any]) -> int | None:
    """Both products of an attention over all keys; masks save nothing here."""
    query, key = inputs[0], inputs[1] if len(inputs) > 1 else None
    if query is None or key is None or len(query) != len(key) or len(query) not in (3, 4):
        return None
    return 4 * math.prod(query) * key[-2]


def _count_recurrent(inputs: Sequence[Sizes], output: Sizes, attributes: Mapping[str, Any]) -> int | None:
    """The products with both weights in every step, of all gates and directions."""
    first, weights, recurrent = (*inputs[:3], None, None, None)[:3]
    if first is None or weights is None or recurrent is None or len(first) != 3:
        return None
    return 2 * first[0] * first[1] * (math.prod(weights) + math.prod(recurrent))


def _count_pool(output: Sizes, attributes: Mapping[str, Any]) -> int | None:
    window = attributes.get("kernel_shape")
    if output is None or not isinstance(window, list | tuple):
        return None
    return math.prod(output) * math.prod(size for size in window if isinstance(size, int))


_PRODUCTS: Final = {
    "Attention": _count_attention,
    "Conv": _count_conv,
    "ConvInteger": _count_conv,
    "ConvTranspose": _count_deconv,
    "GRU": _count_recurrent,
    "Gemm": _count_gemm,
    "LSTM": _count_recurrent,
    "MatMul": _count_matmul,
    "MatMulInteger": _count_matmul,
    "RNN": _count_recurrent,
}
