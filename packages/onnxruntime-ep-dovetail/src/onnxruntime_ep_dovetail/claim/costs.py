"""What a node costs more here than in ONNX Runtime, and what a border costs: enough to tell which nodes to take along.

A partition costs its border: ONNX Runtime calls it, it gathers addresses and starts an engine. Between two partitions,
a node that is taken along costs a step of an engine instead of a kernel of ONNX Runtime, and every byte of its result
is written by one thread of NumPy instead of ONNX Runtime's vector code. Joining two partitions pays when the nodes
between them cost less more than the one border that goes away.

The numbers were measured with chains of one operator over sizes from 256 bytes to 4 MB. They need not be exact: a
step more is tens of bytes of code, and what is far off the line (convolutions, products of matrices, reductions,
results of unknown size) is never taken along.
"""

from __future__ import annotations

import math
from typing import Final

import onnx_ir as ir

from onnxruntime_ep_dovetail.graph.values import is_number

__all__ = ["BORDER_US", "extra_us"]

BORDER_US: Final = 5.0
"""What a partition costs besides its nodes."""
_STEP_US: Final = 2.0
"""What a step of an engine costs besides its bytes."""
_HOST_STEP_US: Final = 0.5
"""The same for a kernel of ONNX Runtime."""
_VIEWS: Final = frozenset(("Dropout", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"))
"""Operators that move no bytes."""
_SIMPLE: Final = frozenset(
    (
        *("Abs", "Add", "And", "Cast", "Ceil", "Clip", "Div", "Equal", "Floor", "Greater", "GreaterOrEqual", "Less"),
        *("LessOrEqual", "Max", "Min", "Mul", "Neg", "Not", "Or", "Reciprocal", "Relu", "Sqrt", "Sub", "Where", "Xor"),
    )
)
"""Operators of one pass over memory."""
_FUNCTIONS: Final = frozenset(("Cos", "Erf", "Exp", "LeakyRelu", "Log", "Pow", "Sigmoid", "Sin", "Tanh"))
"""Operators that compute a function of each element."""
_SIMPLE_BYTES_PER_US: Final = (4000.0, 16000.0)
"""Bytes of results a microsecond, here and in ONNX Runtime."""
_FUNCTION_BYTES_PER_US: Final = (500.0, 5000.0)


def extra_us(node: ir.Node) -> float:
    """How much longer a node takes here than in ONNX Runtime; infinite when it cannot be told or is never worth it."""
    if node.domain not in ("", "ai.onnx"):
        return math.inf
    step_us = _STEP_US - _HOST_STEP_US
    if node.op_type in _VIEWS:
        return step_us if _has_constant_parameters(node) else math.inf
    if node.op_type in _SIMPLE:
        return step_us + _bytes_us(node, *_SIMPLE_BYTES_PER_US)
    if node.op_type in _FUNCTIONS:
        return step_us + _bytes_us(node, *_FUNCTION_BYTES_PER_US)
    return math.inf


def _has_constant_parameters(node: ir.Node) -> bool:
    """Whether only the data decides: a new shape that is computed costs a run that asks for it."""
    return all(value is None or value.const_value is not None for value in node.inputs[1:])


def _bytes_us(node: ir.Node, here: float, there: float) -> float:
    sizes = [_num_bytes(value) for value in node.outputs if value.name]
    return math.inf if None in sizes else sum(size or 0 for size in sizes) * (1 / here - 1 / there)


def _num_bytes(value: ir.Value) -> float | None:
    if value.dtype is None or not is_number(value.dtype) or value.shape is None or not value.shape.is_static():
        return None
    return math.prod(value.shape.numpy()) * value.dtype.bitwidth / 8
