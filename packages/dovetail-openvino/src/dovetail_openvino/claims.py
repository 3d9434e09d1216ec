"""What OpenVINO takes: ONNX's operators as far as it computes what ONNX says.

The rules were found by running onnx's own node tests over OpenVINO 2026.4.1. What a node alone does not tell comes out
when its partition is compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

from dovetail.provider.contract.claims import Claim, NodeView
from dovetail.provider.kernels import KernelRegistry
from dovetail_openvino.device import TYPES

__all__ = ["claim_node", "list_operators"]

Rule = tuple[Callable[[NodeView], object], str]  # what is true of the nodes that are meant; why they are not taken
_MAX_OPSET: Final = 28
"""The newest opset that was checked; OpenVINO takes newer ones for the newest it knows, without a word."""
_FEW: Final = 64  # up to so many integers of 64 bits are sizes, and sizes fit 32
_ROUNDED: Final = "OpenVINO rounds otherwise where the scale is computed"
_ARITHMETIC: Final = (
    *("Abs", "Add", "Clip", "CumSum", "Div", "Einsum", "Gemm", "MatMul", "Mod", "Mul", "Neg", "Pow", "Range"),
    *("ReduceL1", "ReduceL2", "ReduceMean", "ReduceProd", "ReduceSum", "ReduceSumSquare", "Sub", "Sum"),
)
_REFUSED: Final = {
    "OpenVINO has no such operator": "BitCast CausalConvWithState CumProd DeformConv Det ImageDecoder LinearAttention "
    "MaxUnpool MelWeightMatrix Optional OptionalGetElement OptionalHasElement SwiGLU TensorScatter",
    "OpenVINO has random numbers of its own": "Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform "
    "RandomUniformLike",
    "OpenVINO shifts otherwise by negative and by large numbers": "BitShift",
    "OpenVINO leaves inputs out": "DFT",
    "OpenVINO drops boxes that overlap just as much as is allowed": "NonMaxSuppression",
    "OpenVINO gives equal values in another order": "TopK",
    _ROUNDED: "DynamicQuantizeLinear",
}
_REASONS: Final = {op: reason for reason, ops in _REFUSED.items() for op in ops.split()}


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
    if node.domain or node.opset > _MAX_OPSET:
        return f"OpenVINO was not checked with {node.domain or 'ai.onnx'} at opset {node.opset}"
    foreign = {name for name in (*node.input_types, *node.output_types) if name is not None} - TYPES.keys()
    if foreign:
        return f"OpenVINO's CPU plug-in has no {', '.join(sorted(foreign))}, or computes it in fewer bits"
    rules = (*_GENERAL, *_RULES.get(node.op, ()))
    return _REASONS.get(node.op) or next((reason for applies, reason in rules if applies(node)), None)


def _has_input(node: NodeView, *positions: int) -> bool:
    return any(name for position, name in enumerate(node.input_types) if position in positions)


def _has_unknown_rank(node: NodeView) -> bool:
    return any(name and shape is None for name, shape in zip(node.input_types, node.input_shapes, strict=True))


def _has_empty_weight(node: NodeView) -> bool:
    return node.op != "Resize" and any(0 in (node.input_shapes[position] or ()) for position in node.constants)


def _is_wide(node: NodeView) -> bool:
    sizes = [shape[0] if len(shape) == 1 else _FEW + 1 for shape in node.input_shapes if shape]
    is_few = all(isinstance(size, int) and size <= _FEW for size in sizes)
    return node.op in _ARITHMETIC and "int64" in node.output_types and not is_few


def _is_odd_resize(node: NodeView) -> object:
    given = node.attributes
    is_odd = given.get("antialias") or given.get("exclude_outside") or given.get("mode") == "cubic"
    is_odd = is_odd or given.get("keep_aspect_ratio_policy", "stretch") != "stretch"
    return is_odd or given.get("coordinate_transformation_mode") in ("align_corners", "tf_crop_and_resize")


def _is_odd_attention(node: NodeView) -> object:
    is_windowed = {"left_window_size", "right_window_size"} & node.attributes.keys()
    return len(node.output_types) > 1 or _has_input(node, 4, 5, 6) or is_windowed


_GENERAL: Final[tuple[Rule, ...]] = (
    (_has_unknown_rank, "OpenVINO's CPU plug-in must know the number of dimensions"),
    (_is_wide, "OpenVINO computes 64-bit integers in 32 bits"),
    (lambda node: any("float8" in (name or "") for name in node.output_types), "OpenVINO rounds to 8 bits otherwise"),
    (_has_empty_weight, "OpenVINO takes an empty weight for a scalar"),
)
_CEIL: Final[Rule] = (lambda node: node.attributes.get("ceil_mode"), "OpenVINO keeps windows that begin in the padding")
_LAYOUT: Final[Rule] = (lambda node: node.attributes.get("layout"), "OpenVINO takes the batch for the time")
_INFINITE: Final[Rule] = (lambda node: "float" in node.types["T"], "OpenVINO takes infinity for the largest number")
_RULES: Final[Mapping[str, tuple[Rule, ...]]] = {
    "Attention": ((_is_odd_attention, "OpenVINO has only plain attention"),),
    "AveragePool": (_CEIL,),
    "GRU": (_LAYOUT,),
    "LSTM": (_LAYOUT, (lambda node: _has_input(node, 7), "OpenVINO leaves peepholes out")),
    "LpPool": (_CEIL,),
    "MaxPool": (_CEIL,),
    "QuantizeLinear": ((lambda node: 1 not in node.constants, _ROUNDED),),
    "RNN": (_LAYOUT,),
    "ReduceMax": (_INFINITE,),
    "ReduceMin": (_INFINITE,),
    "Resize": ((_is_odd_resize, "OpenVINO resizes otherwise with these attributes"),),
    "RoiAlign": ((lambda node: node.attributes.get("mode") == "max", "OpenVINO takes other points"),),
    "SpaceToDepth": ((lambda node: node.attributes.get("mode") == "CRD", "OpenVINO has only the order DCR"),),
    "Tile": ((lambda node: 1 not in node.constants, "OpenVINO repeats wrongly where the numbers are computed"),),
}


@cache
def list_operators() -> KernelRegistry:
    """The operators as a registry, for coverage reports; they cannot be called one by one."""
    from onnx import defs

    registry = KernelRegistry("openvino")
    newest = {schema.name: schema for schema in defs.get_all_schemas() if not schema.domain and not schema.deprecated}
    for op in sorted(newest.keys() - _REASONS.keys()):
        registry.register(op, since=newest[op].since_version)(_run_alone)
    return registry


def _run_alone(*arrays: Any) -> Any:
    raise NotImplementedError("OpenVINO runs partitions, not single kernels")
