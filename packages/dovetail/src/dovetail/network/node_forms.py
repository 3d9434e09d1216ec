"""Nodes that fit their schema and still can never run: what a schema cannot say of counts, orders and sizes.

Some kernels of ONNX Runtime take for granted that somebody has looked, and end the process where nobody has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import onnx_ir as ir

from dovetail.provider.schemas.node_limits import is_bad_count

__all__ = ["find_form_problems"]

_MAX_SHOWN: Final = 8
_KNOWN_DOMAINS: Final = frozenset(("", "ai.onnx", "com.microsoft"))


def find_form_problems(node: ir.Node) -> Iterator[str]:
    """What is wrong with a node whose attributes have the right types."""
    order = _ints(node, "perm")
    if order is not None and sorted(order) != list(range(len(order))):
        yield f"attribute 'perm' is no order of axes: {list(order[:_MAX_SHOWN])}"
    if node.domain in _KNOWN_DOMAINS:
        yield from _is_bad_counts(node)
    if node.domain in ("", "ai.onnx"):
        yield from _BY_OPERATOR.get(node.op_type, _find_nothing)(node)


def _find_nothing(node: ir.Node) -> Iterator[str]:
    return iter(())


def _is_bad_counts(node: ir.Node) -> Iterator[str]:
    for name in node.attributes:
        single = _int(node, name)
        numbers = _ints(node, name) or ([] if single is None else [single])
        if is_bad_count(node.op_type, name, numbers):
            yield f"attribute '{name}' is {numbers if single is None else single}; expected 1 to 2147483647"


def _find_in_transpose(node: ir.Node) -> Iterator[str]:
    order, value = _ints(node, "perm"), node.inputs[0] if node.inputs else None
    shape = None if value is None else value.shape
    if order is not None and shape is not None and len(order) != len(shape):
        yield f"attribute 'perm' has {len(order)} axes; expected {len(shape)}, as the input has"


def _find_in_split(node: ir.Node) -> Iterator[str]:
    count = _int(node, "num_outputs")
    if count is not None and count != len(node.outputs):
        yield f"attribute 'num_outputs' is {count}; expected {len(node.outputs)}, as there are outputs"
    sizes = _ints(node, "split")
    if sizes is None and len(node.inputs) > 1:
        sizes = _constant(node.inputs[1])
    if sizes is None:
        return
    if len(sizes) != len(node.outputs):
        yield f"'split' has {len(sizes)} sizes; expected {len(node.outputs)}, as there are outputs"
    if any(size < 0 for size in sizes):
        yield f"'split' has a negative size: {list(sizes[:_MAX_SHOWN])}"


def _find_in_scan(node: ir.Node) -> Iterator[str]:
    count = _int(node, "num_scan_inputs")
    if count is not None and not 0 < count <= len(node.inputs):
        yield f"attribute 'num_scan_inputs' is {count}; expected 1 to {len(node.inputs)}, as there are inputs"


_BY_OPERATOR: Final[Mapping[str, Callable[[ir.Node], Iterator[str]]]] = {
    "Scan": _find_in_scan,
    "Split": _find_in_split,
    "Transpose": _find_in_transpose,
}


def _int(node: ir.Node, name: str) -> int | None:
    attribute = node.attributes.get(name)
    is_int = attribute is not None and not attribute.is_ref() and attribute.type == ir.AttributeType.INT
    return attribute.as_int() if attribute is not None and is_int else None


def _ints(node: ir.Node, name: str) -> Sequence[int] | None:
    attribute = node.attributes.get(name)
    is_list = attribute is not None and not attribute.is_ref() and attribute.type == ir.AttributeType.INTS
    return list(attribute.as_ints()) if attribute is not None and is_list else None


def _constant(value: ir.Value | None) -> Sequence[int] | None:
    """The numbers of a small vector that is a constant."""
    if value is None or value.const_value is None or not value.is_initializer() or value.is_graph_input():
        return None
    array = value.const_value.numpy()
    return [int(number) for number in array.reshape(-1)] if array.dtype.kind == "i" else None
