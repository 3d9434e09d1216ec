"""Which operators lose too much in half precision, and which have no type of their own."""

from __future__ import annotations

from typing import Final

__all__ = ["JOINING", "MOVING", "SENSITIVE"]

_SUM: Final = "a sum over many elements loses small terms"
_SPREAD: Final = "its results spread over more magnitudes than the type has"

SENSITIVE: Final = {
    "ReduceSum": _SUM,
    "ReduceMean": _SUM,
    "ReduceSumSquare": _SUM,
    "ReduceL1": _SUM,
    "ReduceL2": _SUM,
    "ReduceLogSum": _SUM,
    "ReduceLogSumExp": _SUM,
    "ReduceProd": _SPREAD,
    "CumSum": _SUM,
    "CumProd": _SPREAD,
    "LpNormalization": _SUM,
    "MeanVarianceNormalization": _SUM,
    "Exp": _SPREAD,
    "Log": _SPREAD,
    "Pow": _SPREAD,
    "Reciprocal": _SPREAD,
    "NegativeLogLikelihoodLoss": _SUM,
    "SoftmaxCrossEntropyLoss": _SUM,
}
"""Operators of ONNX that stay in FP32, and why.

Normalizations, Softmax and attention are not among them: as single operators their kernels take narrow types and sum
in FP32. Written out as several operators, their sums are in this table and the rest follows by ``JOINING``.
"""

JOINING: Final = frozenset(
    (
        *("Abs", "Add", "Clip", "Div", "Erf", "Max", "Mean", "Min", "Mul", "Neg", "Sigmoid", "Sqrt", "Sub", "Sum"),
        *("Tanh", "Where", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal"),
    )
)
"""Operators that go on in FP32 with what a sensitive one made: a sum is no use if the next step rounds it."""

MOVING: Final = frozenset(
    (
        *("Concat", "DepthToSpace", "Dropout", "Expand", "Flatten", "Gather", "GatherElements", "GatherND"),
        *("Identity", "Pad", "Reshape", "ReverseSequence", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile"),
        *("Transpose", "Unsqueeze", "Compress", "MaxPool", "GlobalMaxPool", "Relu", "ReduceMax", "ReduceMin"),
    )
)
"""Operators that move or choose elements: they stay in the type that their elements have."""
