"""What a layer of the network's own kinds would say of itself, read from a node of an ONNX model.

Programs look at the layers of a model they have read: kernel sizes, strides, operations. What a node says by itself is
here, and nothing can be set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy.typing as npt
import onnx_ir as ir

from dovetail.network.api.enums import (
    ActivationType,
    ElementWiseOperation,
    LayerType,
    MatrixOperation,
    PaddingMode,
    PoolingType,
    ReduceOperation,
    TopKOperation,
    UnaryOperation,
)
from dovetail.types import DataType, Dims, Permutation, Weights, data_type_from_numpy

__all__ = ["PROPERTIES", "read_operation"]

Reader = Callable[[ir.Node], Any]

_ACTIVATIONS: Final = {
    "Relu": ActivationType.RELU,
    "Sigmoid": ActivationType.SIGMOID,
    "Tanh": ActivationType.TANH,
    "LeakyRelu": ActivationType.LEAKY_RELU,
    "Elu": ActivationType.ELU,
    "Selu": ActivationType.SELU,
    "Softsign": ActivationType.SOFTSIGN,
    "Softplus": ActivationType.SOFTPLUS,
    "Clip": ActivationType.CLIP,
    "HardSigmoid": ActivationType.HARD_SIGMOID,
    "ThresholdedRelu": ActivationType.THRESHOLDED_RELU,
    "Gelu": ActivationType.GELU_ERF,
}
_ELEMENTWISE: Final = {
    "Add": ElementWiseOperation.SUM,
    "Sum": ElementWiseOperation.SUM,
    "Sub": ElementWiseOperation.SUB,
    "Mul": ElementWiseOperation.PROD,
    "Div": ElementWiseOperation.DIV,
    "Pow": ElementWiseOperation.POW,
    "Max": ElementWiseOperation.MAX,
    "Min": ElementWiseOperation.MIN,
    "And": ElementWiseOperation.AND,
    "Or": ElementWiseOperation.OR,
    "Xor": ElementWiseOperation.XOR,
    "Equal": ElementWiseOperation.EQUAL,
    "Greater": ElementWiseOperation.GREATER,
    "Less": ElementWiseOperation.LESS,
}
_POOLING: Final = {
    "MaxPool": PoolingType.MAX,
    "GlobalMaxPool": PoolingType.MAX,
    "AveragePool": PoolingType.AVERAGE,
    "GlobalAveragePool": PoolingType.AVERAGE,
}
_OPERATIONS: Final[Mapping[str, Any]] = {**_ACTIVATIONS, **_POOLING}
_REDUCE: Final = {
    "ReduceSum": ReduceOperation.SUM,
    "ReduceMean": ReduceOperation.AVG,
    "ReduceMax": ReduceOperation.MAX,
    "ReduceMin": ReduceOperation.MIN,
    "ReduceProd": ReduceOperation.PROD,
}
_TOPK: Final = {"ArgMax": TopKOperation.MAX, "ArgMin": TopKOperation.MIN}
_UNARY: Final = {
    **{op.title(): UnaryOperation[op] for op in UnaryOperation.__members__ if op not in ("RECIP", "ISINF", "ISNAN")},
    "Reciprocal": UnaryOperation.RECIP,
    "IsInf": UnaryOperation.ISINF,
    "IsNaN": UnaryOperation.ISNAN,
}


def read_operation(node: ir.Node) -> Any:
    """The ``type`` of an activation or pooling layer; None for any other node.

    >>> read_operation(ir.node("Relu", [ir.Value(name="x")])).name
    'RELU'
    """
    return _OPERATIONS.get(node.op_type)


def _int(name: str, default: int) -> Reader:
    return lambda node: node.attributes.get_int(name, default)


def _float(name: str, default: float) -> Reader:
    return lambda node: node.attributes.get_float(name, default)


def _weights_shape(node: ir.Node) -> Sequence[int] | None:
    value = node.inputs[1] if len(node.inputs) > 1 else None
    shape = None if value is None else value.shape
    sizes = [] if shape is None else [dim for dim in shape if isinstance(dim, int)]
    return sizes if shape is not None and len(sizes) == len(shape) else None


def _kernel_size(node: ir.Node) -> Dims | None:
    given, shape = node.attributes.get("kernel_shape"), _weights_shape(node)
    if given is not None:
        return Dims(list(given.as_ints()))
    return None if shape is None else Dims(shape[2:])


def _per_axis(name: str, default: int) -> Reader:
    def read(node: ir.Node) -> Dims | None:
        size = _kernel_size(node)
        if size is None:
            return None
        return Dims(list(node.attributes.get_ints(name) or [default] * len(size))[: len(size)])

    return read


def _post_padding(node: ir.Node) -> Dims | None:
    size = _kernel_size(node)
    return None if size is None else Dims(list(node.attributes.get_ints("pads") or [0] * 2 * len(size))[len(size) :])


def _padding_mode(node: ir.Node) -> PaddingMode:
    explicit = "EXPLICIT_ROUND_UP" if node.attributes.get_int("ceil_mode", 0) else "EXPLICIT_ROUND_DOWN"
    mode = node.attributes.get_string("auto_pad", "NOTSET")
    return PaddingMode[mode if mode.startswith("SAME") else explicit]


def _array(node: ir.Node, index: int) -> npt.NDArray[Any] | None:
    """The contents of an input that is a constant."""
    value = node.inputs[index] if index < len(node.inputs) else None
    constant = None if value is None else value.const_value
    return None if constant is None else constant.numpy()


def _weights(index: int) -> Reader:
    def read(node: ir.Node) -> Weights | None:
        array = _array(node, index)
        return None if array is None else Weights(array)

    return read


def _first_transpose(node: ir.Node) -> Permutation:
    order = node.attributes.get_ints("perm") if node.op_type == "Transpose" else None
    shape = None if node.inputs[0] is None else node.inputs[0].shape
    count = Dims.MAX_DIMS if shape is None else len(shape)
    named = list(order or ()) or (range(count)[::-1] if node.op_type == "Transpose" else range(count))
    return Permutation(named)


def _reshape_dims(node: ir.Node) -> Dims:
    """The new shape where it is a constant, the shape of the output elsewhere."""
    sizes, shape = _array(node, 1) if node.op_type == "Reshape" else None, node.outputs[0].shape
    if sizes is not None:
        return Dims(sizes.tolist())
    return Dims([dim if isinstance(dim, int) else -1 for dim in shape or ()])


def _axes_mask(node: ir.Node) -> int | None:
    """The axes of a reduction, as a mask; all of them where the node names none."""
    shape = None if node.inputs[0] is None else node.inputs[0].shape
    if shape is None:
        return None
    array, given = _array(node, 1), node.attributes.get_ints("axes")
    axes = given if array is None else array.tolist()
    return sum(1 << (axis + len(shape) if axis < 0 else axis) for axis in axes or range(len(shape)))


def _topk_count(node: ir.Node) -> int | None:
    array = _array(node, 1) if node.op_type == "TopK" else None
    return (None if node.op_type == "TopK" else 1) if array is None else int(array.reshape(-1)[0])


def _topk_operation(node: ir.Node) -> TopKOperation | None:
    if node.op_type == "TopK":
        return TopKOperation.MAX if node.attributes.get_int("largest", 1) else TopKOperation.MIN
    return _TOPK.get(node.op_type)


def _num_output_maps(node: ir.Node) -> int | None:
    shape = _weights_shape(node)
    if shape is None:
        return None
    return shape[1] * node.attributes.get_int("group", 1) if node.op_type == "ConvTranspose" else shape[0]


def _one_axis_mask(node: ir.Node) -> int | None:
    axis = node.attributes.get_int("axis", 0 if node.op_type.startswith("Arg") else -1)
    shape = None if node.inputs[0] is None else node.inputs[0].shape
    return 1 << axis if axis >= 0 else None if shape is None else 1 << (axis + len(shape))


def _transposed(name: str) -> Reader:
    return lambda node: MatrixOperation.TRANSPOSE if node.attributes.get_int(name, 0) else MatrixOperation.NONE


def _cast_type(node: ir.Node) -> DataType | None:
    value = node.outputs[0]
    return None if value.dtype is None else data_type_from_numpy(value.dtype.numpy())


_WINDOW: Final[Mapping[str, Reader]] = {
    "stride_nd": _per_axis("strides", 1),
    "padding_nd": _per_axis("pads", 0),
    "pre_padding": _per_axis("pads", 0),
    "post_padding": _post_padding,
    "padding_mode": _padding_mode,
}
_CONVOLUTION: Final[Mapping[str, Reader]] = {
    **_WINDOW,
    "kernel_size_nd": _kernel_size,
    "dilation_nd": _per_axis("dilations", 1),
    "num_groups": _int("group", 1),
    "num_output_maps": _num_output_maps,
    "kernel": _weights(1),
    "bias": _weights(2),
}

PROPERTIES: Final[Mapping[LayerType, Mapping[str, Reader]]] = {
    LayerType.ACTIVATION: {"alpha": _float("alpha", 0.0), "beta": _float("beta", 0.0)},
    LayerType.CAST: {"to_type": _cast_type},
    LayerType.CONCATENATION: {"axis": _int("axis", 0)},
    LayerType.CONVOLUTION: _CONVOLUTION,
    LayerType.DECONVOLUTION: _CONVOLUTION,
    LayerType.ELEMENTWISE: {"op": lambda node: _ELEMENTWISE.get(node.op_type)},
    LayerType.GATHER: {"axis": _int("axis", 0)},
    LayerType.MATRIX_MULTIPLY: {"op0": _transposed("transA"), "op1": _transposed("transB")},
    LayerType.NORMALIZATION: {"epsilon": _float("epsilon", 1e-5)},
    LayerType.ONE_HOT: {"axis": _int("axis", -1)},
    LayerType.POOLING: {
        **_WINDOW,
        "window_size_nd": _kernel_size,
        "blend_factor": lambda node: 0.0,
        "average_count_excludes_padding": lambda node: not node.attributes.get_int("count_include_pad", 0),
    },
    LayerType.REDUCE: {
        "op": lambda node: _REDUCE.get(node.op_type),
        "axes": _axes_mask,
        "keep_dims": lambda node: bool(node.attributes.get_int("keepdims", 1)),
    },
    LayerType.SHUFFLE: {
        "first_transpose": _first_transpose,
        "reshape_dims": _reshape_dims,
        "second_transpose": lambda node: Permutation(range(Dims.MAX_DIMS)),
        "zero_is_placeholder": lambda node: not node.attributes.get_int("allowzero", 0),
    },
    LayerType.SOFTMAX: {"axes": _one_axis_mask},
    LayerType.TOPK: {"op": _topk_operation, "k": _topk_count, "axes": _one_axis_mask},
    LayerType.UNARY: {"op": lambda node: _UNARY.get(node.op_type)},
}
"""Kind of layer -> what it says, by the name of the property."""
