"""Nodes that OpenVINO's reader of ONNX knows and computes otherwise than ONNX says, or not at all.

Found by running onnx's own node tests over OpenVINO 2026.4.1. Each rule is about what a node alone tells.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from dovetail.provider.interfaces import NodeView

__all__ = ["find_difference"]

Rule = tuple[Callable[[NodeView], object], str]
"""What is true of the nodes that are meant, and why they are not taken."""
_ARITHMETIC: Final = frozenset(
    "Abs Add Clip CumSum Div Einsum Gemm MatMul Mod Mul Neg Pow Range ReduceL1 ReduceL2 ReduceMean ReduceProd ReduceSum "
    "ReduceSumSquare Sub Sum".split()
)
_FEW: Final = 64
"""Up to so many integers of 64 bits are sizes, and sizes fit 32."""


def find_difference(node: NodeView) -> str | None:
    """Why a node is better left to another provider; None when there is no reason."""
    rules = _RULES.get(node.op, ())
    return next((reason for applies, reason in (*_GENERAL, *rules) if applies(node)), None)


def _has_input(node: NodeView, *positions: int) -> bool:
    return any(position < len(node.input_types) and node.input_types[position] for position in positions)


def _has_unknown_rank(node: NodeView) -> bool:
    return any(name and shape is None for name, shape in zip(node.input_types, node.input_shapes, strict=True))


def _has_empty_weight(node: NodeView) -> bool:
    return node.op != "Resize" and any(0 in (node.input_shapes[position] or ()) for position in node.constants)


def _is_wide(node: NodeView) -> bool:
    sizes = [shape[0] if len(shape) == 1 else _FEW + 1 for shape in node.input_shapes if shape]
    is_few = all(isinstance(size, int) and size <= _FEW for size in sizes)
    return node.op in _ARITHMETIC and "int64" in node.output_types and not is_few


def _is_odd_resize(node: NodeView) -> bool:
    given = node.attributes
    is_odd = given.get("antialias") or given.get("exclude_outside") or given.get("mode") == "cubic"
    is_odd = is_odd or given.get("keep_aspect_ratio_policy", "stretch") != "stretch"
    return bool(is_odd) or given.get("coordinate_transformation_mode") in ("align_corners", "tf_crop_and_resize")


def _is_odd_attention(node: NodeView) -> bool:
    is_windowed = {"left_window_size", "right_window_size"} & node.attributes.keys()
    return len(node.output_types) > 1 or _has_input(node, 4, 5, 6) or bool(is_windowed)


_GENERAL: Final[tuple[Rule, ...]] = (
    (_has_unknown_rank, "OpenVINO's CPU plug-in must know the number of dimensions"),
    (_has_empty_weight, "OpenVINO takes an empty weight for a scalar"),
    (_is_wide, "OpenVINO computes 64-bit integers in 32 bits"),
    (lambda node: any("float8" in (name or "") for name in node.output_types), "OpenVINO rounds to 8 bits otherwise"),
)
_CEIL: Final[Rule] = (lambda node: node.attributes.get("ceil_mode"), "OpenVINO keeps windows that begin in the padding")
_LAYOUT: Final[Rule] = (lambda node: node.attributes.get("layout"), "OpenVINO takes the batch for the time")
_INFINITE: Final[Rule] = (lambda node: "float" in node.types["T"], "OpenVINO takes infinity for the largest number")
_ROUNDED: Final = "OpenVINO rounds otherwise where the scale is computed"
_RULES: Final[Mapping[str, tuple[Rule, ...]]] = {
    "Attention": ((_is_odd_attention, "OpenVINO has only plain attention"),),
    "AveragePool": (_CEIL,),
    "BitShift": ((lambda _: True, "OpenVINO shifts otherwise by negative and by large numbers"),),
    "DFT": ((lambda _: True, "OpenVINO leaves inputs out"),),
    "DynamicQuantizeLinear": ((lambda _: True, _ROUNDED),),
    "GRU": (_LAYOUT,),
    "LSTM": (_LAYOUT, (lambda node: _has_input(node, 7), "OpenVINO leaves peepholes out")),
    "LpPool": (_CEIL,),
    "MaxPool": (_CEIL,),
    "NonMaxSuppression": ((lambda _: True, "OpenVINO drops boxes that overlap just as much as is allowed"),),
    "QuantizeLinear": ((lambda node: 1 not in node.constants, _ROUNDED),),
    "RNN": (_LAYOUT,),
    "ReduceMax": (_INFINITE,),
    "ReduceMin": (_INFINITE,),
    "Resize": ((_is_odd_resize, "OpenVINO resizes otherwise with these attributes"),),
    "RoiAlign": ((lambda node: node.attributes.get("mode") == "max", "OpenVINO takes other points"),),
    "SpaceToDepth": ((lambda node: node.attributes.get("mode") == "CRD", "OpenVINO has only the order DCR"),),
    "Tile": ((lambda node: 1 not in node.constants, "OpenVINO repeats wrongly where the numbers are computed"),),
    "TopK": ((lambda _: True, "OpenVINO gives equal values in another order"),),
}
