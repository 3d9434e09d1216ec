"""Nodes that fit their schema and still can never run: what a schema cannot say of counts, orders and sizes.

Some kernels of ONNX Runtime take for granted that somebody has looked, and end the process where nobody has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import onnx_ir as ir

from dovetail.provider.schemas.node_limits import NodeForm, find_bad_form
from dovetail.provider.schemas.shape_slots import shape_slots

__all__ = ["find_form_problems"]

_MAX_SHOWN: Final = 8
_KNOWN_DOMAINS: Final = frozenset(("", "ai.onnx", "com.microsoft"))
_MAX_AXES: Final = 1024
_LISTS_PARTS: Final = frozenset(("Split", "SplitToSequence"))
_SIGNED: Final = frozenset({ir.DataType.INT8, ir.DataType.INT16, ir.DataType.INT32, ir.DataType.INT64})


def find_form_problems(node: ir.Node) -> Iterator[str]:
    """What is wrong with a node whose attributes have the right types."""
    if node.domain in _KNOWN_DOMAINS:
        yield from find_bad_form(_read_form(node))
    if node.domain in ("", "ai.onnx"):
        yield from _find_long_shapes(node)
        yield from _BY_OPERATOR.get(node.op_type, _find_nothing)(node)


def _find_nothing(node: ir.Node) -> Iterator[str]:
    return iter(())


def _find_long_shapes(node: ir.Node) -> Iterator[str]:
    """Inputs with a number for each axis, of which no tensor has so many: each would become a dimension somewhere."""
    for position in sorted(shape_slots(node.op_type)):
        value = node.inputs[position] if position < len(node.inputs) else None
        shape = None if value is None else value.shape
        size = shape[0] if shape is not None and len(shape) == 1 else None
        if isinstance(size, int) and size > _MAX_AXES and node.op_type not in _LISTS_PARTS:
            yield f"input {position} has {size} numbers, one for each axis; expected at most {_MAX_AXES}"


def _read_form(node: ir.Node) -> NodeForm:
    numbers = {name: found for name in node.attributes if (found := _numbers(node, name)) is not None}
    sizes = _constant(node.inputs[1]) if node.op_type == "Split" and len(node.inputs) > 1 else None
    if sizes is not None:
        numbers["split"] = sizes
    return NodeForm(op=node.op_type, num_inputs=len(node.inputs), num_outputs=len(node.outputs), numbers=numbers)


def _find_in_transpose(node: ir.Node) -> Iterator[str]:
    order = _numbers(node, "perm") if "perm" in node.attributes else None
    value = node.inputs[0] if node.inputs else None
    shape = None if value is None else value.shape
    if order is not None and shape is not None and len(order) != len(shape):
        yield f"attribute 'perm' has {len(order)} axes; expected {len(shape)}, as the input has"


def _find_in_attention(node: ir.Node) -> Iterator[str]:
    for name, value in zip(("q_num_heads", "kv_num_heads"), node.inputs, strict=False):
        count, features = _int(node, name), _last_of_three(value)
        if count and features is not None and features % count:
            yield f"attribute '{name}' is {count}; expected a divisor of {features}, the last size of its input"


def _find_in_division(node: ir.Node) -> Iterator[str]:
    values = [value for value in node.inputs if value is not None and _is_constant(value)]
    if len(values) != 2 or any(value.dtype not in _SIGNED for value in values):
        return
    dividend, divisor = (value.const_value.numpy() for value in values if value.const_value is not None)
    if (dividend == np.iinfo(dividend.dtype).min).any() and (divisor == -1).any():
        yield "it divides the smallest integer of its type by -1, and the type does not have the result"


def _find_in_resize(node: ir.Node) -> Iterator[str]:
    position = 1 if node.op_type == "Upsample" or node.version == 10 else 2
    value = node.inputs[position] if position < len(node.inputs) else None
    if value is None or value.const_value is None or not _is_constant(value):
        return
    scales = value.const_value.numpy().astype(np.float64).reshape(-1)
    if not (np.isfinite(scales) & (scales > 0)).all():
        yield f"'scales' is {scales[:_MAX_SHOWN].tolist()}; expected positive numbers"


def _find_in_stft(node: ir.Node) -> Iterator[str]:
    step = _constant(node.inputs[1]) if len(node.inputs) > 1 else None
    if step and step[0] < 1:
        yield f"'frame_step' is {step[0]}; expected at least 1"


_BY_OPERATOR: Final[Mapping[str, Callable[[ir.Node], Iterator[str]]]] = {
    "Attention": _find_in_attention,
    "Div": _find_in_division,
    "Resize": _find_in_resize,
    "STFT": _find_in_stft,
    "Transpose": _find_in_transpose,
    "Upsample": _find_in_resize,
}


def _int(node: ir.Node, name: str) -> int | None:
    attribute = node.attributes.get(name)
    is_int = attribute is not None and not attribute.is_ref() and attribute.type == ir.AttributeType.INT
    return attribute.as_int() if attribute is not None and is_int else None


def _numbers(node: ir.Node, name: str) -> Sequence[int] | None:
    """An attribute that is a list of numbers, or one."""
    attribute = node.attributes[name]
    if not attribute.is_ref() and attribute.type == ir.AttributeType.INTS:
        return list(attribute.as_ints())
    single = _int(node, name)
    return None if single is None else [single]


def _constant(value: ir.Value | None) -> Sequence[int] | None:
    """The numbers of a small vector that is a constant."""
    if value is None or value.const_value is None or not _is_constant(value):
        return None
    array = value.const_value.numpy()
    return [int(number) for number in array.reshape(-1)] if array.dtype.kind == "i" else None


def _is_constant(value: ir.Value) -> bool:
    return value.const_value is not None and value.is_initializer() and not value.is_graph_input()


def _last_of_three(value: ir.Value | None) -> int | None:
    """The last size of a tensor of rank 3, where it is known."""
    shape = None if value is None else value.shape
    size = shape[2] if shape is not None and len(shape) == 3 else None
    return size if isinstance(size, int) else None
