"""Nodes that ONNX Runtime has a kernel for and computes otherwise than ONNX says, or not at all.

Found by running the backend suite of onnx and random models over it (version 1.31.1), and our tests over older ones.
Each rule names the smallest case that can be told from the node alone, so that nothing that works is cut out of a
partition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Final

from dovetail.provider.interfaces import NodeView
from dovetail.providers.onnxruntime.sessions import import_onnxruntime

__all__ = ["find_difference"]

_LESS_EXACT: Final = "ONNX Runtime sums it in single precision, term by term; its error is over 1e-4"


def find_difference(node: NodeView) -> str | None:
    """Why a node is better left to another provider; None when there is no reason."""
    rule = _RULES.get(node.op) if node.domain == "" else None
    return None if rule is None else rule(node)


def _check_attention(node: NodeView) -> str | None:
    if _has_input(node, 6) and _has_input(node, 3):
        return "ONNX Runtime takes no mask that is shorter than padded keys"
    if _has_input(node, 3) and not _is_full_mask(node):
        return "ONNX Runtime takes only masks with a row for each query"
    if len(node.output_types) > 3 and node.attributes.get("is_causal"):
        return "ONNX Runtime gives the scores out without the causal mask"
    return None


def _is_full_mask(node: NodeView) -> bool:
    query, mask = node.input_shapes[0], node.input_shapes[3]
    return query is not None and mask is not None and len(mask) > 1 and mask[-2] == query[-2]


def _check_unpool(node: NodeView) -> str | None:
    return (
        "ONNX Runtime reads indices by another shape when the shape of the output is given"
        if _has_input(node, 2)
        else None
    )


def _check_integer_conv(node: NodeView) -> str | None:
    shape = node.input_shapes[3] if _has_input(node, 3) else ()
    if shape is not None and list(shape) not in ([], [1]):
        return "ONNX Runtime takes no zero point a channel"
    return _check_same_padding(node)


def _check_extreme(node: NodeView) -> str | None:
    return "ONNX Runtime fails for an empty set of bool" if node.input_types[0] == "bool" else None


def _check_integer_product(node: NodeView) -> str | None:
    shape = node.input_shapes[0]
    return "ONNX Runtime leaves a sum of nothing as the memory was" if shape and shape[-1] == 0 else None


def _check_quantize(node: NodeView) -> str | None:
    is_same = node.input_types[0] == node.input_types[1]
    return None if is_same else "ONNX Runtime takes the scale to be of the type of the data"


def _check_dequantize(node: NodeView) -> str | None:
    is_same = node.output_types[0] == node.input_types[1]
    return None if is_same or not _is_before(1, 31) else "ONNX Runtime before 1.31 gives the type of the scale only"


def _check_top_k(node: NodeView) -> str | None:
    is_empty = 0 in (node.input_shapes[0] or ())
    return "ONNX Runtime before 1.31 ends the process for an empty tensor" if is_empty and _is_before(1, 31) else None


@cache
def _is_before(*version: int) -> bool:
    """Whether the ONNX Runtime that is installed is older than a version, of which two numbers count."""
    installed: str = import_onnxruntime().__version__
    return tuple(int(part) for part in installed.split(".")[:2]) < version


def _has_input(node: NodeView, index: int) -> bool:
    return index < len(node.input_types) and node.input_types[index] is not None


def _check_division(node: NodeView) -> str | None:
    """The processor has no quotient of the smallest integer and -1, and ends the process."""
    if node.input_types[0] not in ("int32", "int64") or node.attributes.get("fmod"):
        return None
    divisor = node.read_constant(1)
    is_safe = divisor is not None and not (divisor == -1).any()
    return None if is_safe else "ONNX Runtime ends the process where the smallest integer is divided by -1"


def _check_same_padding(node: NodeView) -> str | None:
    """ONNX Runtime raises in the run for a convolution, and pads pooling as if the window were not dilated."""
    is_dilated = any(spacing > 1 for spacing in node.attributes.get("dilations") or ())
    return "ONNX Runtime ignores dilations for auto_pad SAME" if _is_same(node) and is_dilated else None


def _check_max_pool(node: NodeView) -> str | None:
    if not _is_same(node):
        return None
    window, strides = node.attributes.get("kernel_shape") or (), node.attributes.get("strides") or ()
    has_gaps = any(stride > size for size, stride in zip(window, strides, strict=False))
    return "ONNX Runtime fails for auto_pad SAME with gaps between windows" if has_gaps else _check_same_padding(node)


def _check_transposed_conv(node: NodeView) -> str | None:
    """With gaps between windows ONNX Runtime makes the output smaller than input times stride."""
    if not _is_same(node) or node.attributes.get("output_shape"):
        return None
    strides = list(node.attributes.get("strides") or ())
    weights = node.input_shapes[1]
    window = node.attributes.get("kernel_shape") or (None if weights is None else weights[2:])
    if window is None or not all(isinstance(size, int) for size in window):
        return None if all(stride == 1 for stride in strides) else "it is not known whether windows have gaps"
    spacings = list(node.attributes.get("dilations") or [1] * len(window))
    extents = [spacing * (size - 1) + 1 for spacing, size in zip(spacings, window, strict=False)]
    has_gaps = any(stride > extent for extent, stride in zip(extents, strides, strict=False))
    return "ONNX Runtime makes another shape for auto_pad SAME with gaps between windows" if has_gaps else None


def _is_same(node: NodeView) -> bool:
    return node.attributes.get("auto_pad", "NOTSET") in ("SAME_UPPER", "SAME_LOWER")


_RULES: Final[Mapping[str, Callable[[NodeView], str | None]]] = {
    "Attention": _check_attention,
    "AveragePool": _check_same_padding,
    "Conv": _check_same_padding,
    "ConvInteger": _check_integer_conv,
    "ConvTranspose": _check_transposed_conv,
    "DFT": lambda _: _LESS_EXACT,
    "DequantizeLinear": _check_dequantize,
    "Div": _check_division,
    "LpPool": _check_same_padding,
    "MatMulInteger": _check_integer_product,
    "MaxPool": _check_max_pool,
    "MaxUnpool": _check_unpool,
    "Mod": _check_division,
    "QLinearConv": _check_same_padding,
    "QLinearMatMul": _check_integer_product,
    "QuantizeLinear": _check_quantize,
    "ReduceMax": _check_extreme,
    "ReduceMin": _check_extreme,
    "STFT": lambda _: _LESS_EXACT,
    "TopK": _check_top_k,
}
