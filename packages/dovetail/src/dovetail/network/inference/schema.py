"""Types, and shapes where they are simple, of operators that onnx-shape-inference does not know.

A value without a shape is allowed: its step allocates it. A value without a type is not, because kernels are chosen by
types. A schema ties the types of outputs to those of inputs by name, which is enough for almost all operators.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import onnx_ir as ir
import onnx_shape_inference as osi

from dovetail.network.inference.ml import ML_DOMAIN, find_ml_type, set_ml_shapes
from dovetail.network.onnx_schema import find_schema

__all__ = ["infer_by_schema"]

_MICROSOFT: Final = "com.microsoft"
_TENSORS: Final = {f"tensor({dtype.name.lower()})": dtype for dtype in ir.DataType}

_SAME_SHAPE: Final[Mapping[tuple[str, str], int]] = {
    **dict.fromkeys(
        [
            *((_MICROSOFT, op) for op in ("BiasDropout", "BiasSoftmax", "BitmaskDropout", "Inverse")),
            *((_MICROSOFT, op) for op in ("DequantizeLinear", "QuantizeLinear")),
        ],
        0,
    ),
    (_MICROSOFT, "NGramRepeatBlock"): 1,
}
"""The first output has the shape of this input."""

_LIKE: Final[Mapping[str, tuple[str, int]]] = {
    "DynamicQuantizeMatMul": ("MatMul", 13),
    "FusedConv": ("Conv", 11),
    "FusedGemm": ("Gemm", 13),
    "GatherND": ("GatherND", 11),
    "GridSample": ("GridSample", 16),
    "MatMulInteger16": ("MatMulInteger", 10),
    "MatMulIntegerToFloat": ("MatMul", 13),
    "Pad": ("Pad", 13),
    "Range": ("Range", 11),
    "Trilu": ("Trilu", 14),
    "Unique": ("Unique", 11),
}
"""Operators of ONNX Runtime whose first output has the shape that an ONNX operator of some opset gives it."""


def infer_by_schema(context: osi.ShapeInferenceContext, node: ir.Node) -> None:
    """Set the types of outputs that have none, and their shapes where that takes one look at an input."""
    version = context.get_opset_version(node.domain)
    schema = find_schema(node.op_type, node.domain, version)
    if schema is None:
        return
    _set_shape(context, node)
    for value, kind in zip(node.outputs, _output_types(node, schema), strict=False):
        if kind is not None and value.type != kind:
            value.type = kind


def _set_shape(context: osi.ShapeInferenceContext, node: ir.Node) -> None:
    source = _SAME_SHAPE.get((node.domain, node.op_type))
    if source is not None and source < len(node.inputs):
        given = node.inputs[source]
        if given is not None and given.shape is not None and node.outputs[0].shape is None:
            node.outputs[0].shape = ir.Shape(list(given.shape))
        return
    if node.domain == ML_DOMAIN:
        set_ml_shapes(context, node)
        return
    op, version = _LIKE.get(node.op_type, ("", 0)) if node.domain == _MICROSOFT else ("", 0)
    infer = osi.registry.get("", op, version=version) if op else None
    if infer is not None:
        infer(context, node)


def _output_types(node: ir.Node, schema: Any) -> list[ir.TypeProtocol | None]:
    first = find_ml_type(node) if node.domain == ML_DOMAIN else None
    bound = _bind_types(node, schema)
    formals = [_formal(schema.outputs, index) for index in range(len(node.outputs))]
    dtypes = [None if formal is None else bound.get(formal.type_str, _only_type(formal)) for formal in formals]
    found = [None if dtype is None else ir.TensorType(dtype) for dtype in dtypes]
    return [*found] if first is None else [first, *found[1:]]


def _bind_types(node: ir.Node, schema: Any) -> dict[str, ir.DataType]:
    """The types that inputs give to the names of the schema; a list of mixed types gives none."""
    bound: dict[str, ir.DataType] = {}
    for index, value in enumerate(node.inputs):
        formal = _formal(schema.inputs, index)
        if formal is not None and formal.is_homogeneous and value is not None and isinstance(value.type, ir.TensorType):
            bound.setdefault(formal.type_str, value.type.dtype)
    return bound


def _only_type(formal: Any) -> ir.DataType | None:
    types = list(formal.types)
    return _TENSORS.get(types[0]) if len(types) == 1 else None


def _formal(formals: Any, index: int) -> Any | None:
    """The parameter of a position; the last one may take all that follow."""
    if index < len(formals):
        return formals[index]
    last = formals[-1] if formals else None
    return last if last is not None and last.option.name == "Variadic" else None
