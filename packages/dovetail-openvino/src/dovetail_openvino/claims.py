"""What OpenVINO takes: operators that its reader of ONNX knows, of types that it computes as they are."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from dovetail.provider.interfaces import Claim, NodeView
from dovetail.provider.kernels import KernelRegistry
from dovetail_openvino.device import TYPES
from dovetail_openvino.differences import find_difference

__all__ = ["claim_node", "list_operators"]

_MAX_OPSET: Final = 28
"""The newest opset that was checked; OpenVINO takes newer ones for the newest it knows, without a word."""
_OPERATORS: Final = frozenset(
    """
    Abs Acos Acosh Add AffineGrid And ArgMax ArgMin Asin Asinh Atan Atanh Attention AveragePool BatchNormalization
    BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor BlackmanWindow Cast CastLike Ceil Celu CenterCropPad Clip Col2Im
    Compress Concat ConstantOfShape Conv ConvInteger ConvTranspose Cos Cosh CumSum DFT DepthToSpace DequantizeLinear Div
    Dropout DynamicQuantizeLinear Einsum Elu Equal Erf Exp Expand EyeLike Flatten Floor GRU Gather GatherElements
    GatherND Gelu Gemm GlobalAveragePool GlobalLpPool GlobalMaxPool Greater GreaterOrEqual GridSample GroupNormalization
    HammingWindow HannWindow HardSigmoid HardSwish Hardmax Identity If InstanceNormalization IsInf IsNaN LRN LSTM
    LayerNormalization LeakyRelu Less LessOrEqual Log LogSoftmax Loop LpNormalization LpPool MatMul MatMulInteger Max
    MaxPool MaxRoiPool Mean MeanVarianceNormalization Min Mish Mod Mul Neg NegativeLogLikelihoodLoss NonMaxSuppression
    NonZero Not OneHot Or PRelu Pad Pow QLinearConv QLinearMatMul QuantizeLinear RMSNormalization RNN Range Reciprocal
    ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare
    Relu Reshape Resize ReverseSequence RoiAlign RotaryEmbedding Round STFT Scan ScatterElements ScatterND Selu Shape
    Shrink Sigmoid Sign Sin Sinh Size Slice Softmax SoftmaxCrossEntropyLoss Softplus Softsign SpaceToDepth Split Sqrt
    Squeeze Sub Sum Swish Tan Tanh ThresholdedRelu Tile TopK Transpose Trilu Unique Unsqueeze Where Xor
    """.split()
)
"""Random numbers are not among them: OpenVINO has generators of its own."""


def claim_node(node: NodeView) -> Claim:
    """Whether OpenVINO computes a node as ONNX says, bodies included."""
    reason = _find_reason(node)
    if reason is not None:
        return Claim(taken=False, reason=reason)
    for inner in (inner for body in node.bodies for inner in body):
        claim = claim_node(inner)
        if not claim.taken:
            return Claim(taken=False, reason=f"in its body, '{inner.name}': {claim.reason}")
    return Claim(taken=True)


def _find_reason(node: NodeView) -> str | None:
    if node.domain or node.op not in _OPERATORS:
        return f"OpenVINO does not take {node.domain or 'ai.onnx'}::{node.op}"
    if node.opset > _MAX_OPSET:
        return f"OpenVINO was not checked with opset {node.opset}"
    foreign = {name for name in (*node.input_types, *node.output_types) if name is not None} - TYPES.keys()
    if foreign:
        return f"OpenVINO's CPU plug-in has no {', '.join(sorted(foreign))}, or computes it in fewer bits"
    return find_difference(node)


@cache
def list_operators() -> KernelRegistry:
    """The operators as a registry, for coverage reports; they cannot be called one by one."""
    from onnx import defs

    registry = KernelRegistry("openvino")
    for op in sorted(_OPERATORS):
        registry.register(op, since=defs.get_schema(op, _MAX_OPSET).since_version)(_run_alone)
    return registry


def _run_alone(*arrays: Any) -> Any:
    raise NotImplementedError("OpenVINO runs partitions, not single kernels")
