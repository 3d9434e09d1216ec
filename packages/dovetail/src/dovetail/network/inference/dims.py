"""Dimensions that shape inference only guesses, worked out: broadcasts, pools that round up, shapes read from inputs.

Of two open dimensions the library takes the first to be the broadcast one, it forgets that a pool drops a last window
which lies in the padding, and it takes numbers that are read from an input to be sizes, where they may also be marks:
-1 and 0 in Reshape, a position from the end in Slice. Each function here sets what it knows better on the outputs of a
node; whatever the library then infers is merged into it and never overrides it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx_ir as ir
import onnx_shape_inference as osi

from dovetail.network.inference.dim_exprs import Dim, divide_size, max_of, settle

__all__ = [
    "broadcast_dims",
    "is_hidden",
    "set_broadcast",
    "set_filled",
    "set_flat",
    "set_full_reduction",
    "set_fused_matmul",
    "set_inferred_size",
    "set_matmul",
    "set_pool",
    "set_range",
    "set_reshape",
]


def broadcast_dims(shapes: Sequence[Sequence[Dim]]) -> list[Dim]:
    """The shape that several broadcast to; where two open dims meet, the run decides which of them is 1."""
    rank = max((len(shape) for shape in shapes), default=0)
    result: list[Dim] = [1] * rank
    for shape in shapes:
        for axis, dim in enumerate(shape, start=rank - len(shape)):
            result[axis] = _broadcast(result[axis], dim)
    return result


def _broadcast(first: Dim, second: Dim) -> Dim:
    if first == 1 or first == second:
        return second
    if second == 1 or isinstance(first, int):
        return first
    return second if isinstance(second, int) else max_of(first, second)


def set_broadcast(context: osi.ShapeInferenceContext, node: ir.Node) -> None:
    """The output of an operator whose inputs are broadcast to each other."""
    shapes = [None if value is None else value.shape for value in node.inputs]
    if shapes and all(shape is not None for shape in shapes):
        _set(context, node, broadcast_dims([_named(context, shape) for shape in shapes if shape is not None]))


def set_matmul(context: osi.ShapeInferenceContext, node: ir.Node) -> None:
    """The output of a product of stacks of matrices, where the stacks are broadcast to each other."""
    first, second = node.inputs[:2]
    if first is None or second is None or first.shape is None or second.shape is None:
        return
    one, other = _named(context, first.shape), _named(context, second.shape)
    if min(len(one), len(other)) > 1:
        _set(context, node, [*broadcast_dims([one[:-2], other[:-2]]), one[-2], other[-1]])


def set_fused_matmul(context: osi.ShapeInferenceContext, node: ir.Node) -> bool:
    """The output of a product whose factors have their first axis behind the batch axes; False for any other."""
    moved = [_int(node, name) for name in ("transBatchA", "transBatchB")]
    turned = [_int(node, name) for name in ("transA", "transB")]
    factors = [value for value in node.inputs[:2] if value is not None and value.shape is not None]
    if not any(moved) or len(factors) < 2:
        return False
    left, right = (
        _turn(_named(context, value.shape or ir.Shape(())), bool(batch), bool(matrix))
        for value, batch, matrix in zip(factors, moved, turned, strict=True)
    )
    if len(left) != len(right) or len(left) < 3:
        raise ValueError("factors whose batch is transposed have the same rank, three or more")
    if isinstance(left[-1], int) and isinstance(right[-2], int) and left[-1] != right[-2]:
        raise ValueError(f"the product runs over {left[-1]} elements on the left and {right[-2]} on the right")
    if factors[0].dtype is not None:
        context.set_dtype(node.outputs[0], factors[0].dtype)
    _set(context, node, [*broadcast_dims([left[:-2], right[:-2]]), left[-2], right[-1]])
    return True


def _turn(dims: list[Dim], batch: bool, matrix: bool) -> list[Dim]:
    moved = [*dims[1:-1], dims[0], dims[-1]] if batch else dims
    return [*moved[:-2], moved[-1], moved[-2]] if matrix else moved


def set_pool(context: osi.ShapeInferenceContext, node: ir.Node) -> None:
    """The output of a pool that rounds up: a window must start in the image or in the padding before it."""
    data = node.inputs[0]
    if data is None or data.shape is None or not _int(node, "ceil_mode") or _text(node, "auto_pad") != "NOTSET":
        return
    dims, size = _named(context, data.shape), _ints(node, "kernel_shape", [])
    count = len(dims) - 2
    strides, dilations = _ints(node, "strides", [1] * count), _ints(node, "dilations", [1] * count)
    pads = _ints(node, "pads", [0] * 2 * count)
    if not len(size) == len(strides) == len(dilations) == len(pads) // 2 == count or min(strides) < 1:
        return  # the library says what is wrong
    for axis in range(count):
        span, before, after = dilations[axis] * (size[axis] - 1) + 1, pads[axis], pads[axis + count]
        dims[axis + 2] = _pooled(dims[axis + 2], strides[axis], before, before + after - span)
    for value in node.outputs:
        context.set_shape(value, ir.Shape(dims))


def _pooled(dim: Dim, stride: int, before: int, room: int) -> Dim:
    # The smaller of the windows that fit, the last one rounded up, and of those that start early enough.
    return (dim + min(room + stride, before) - 1) // stride + 1


def set_reshape(context: osi.ShapeInferenceContext, node: ir.Node, is_given: Sequence[bool]) -> None:
    """The output of Reshape when some of the new sizes, as ``is_given`` says, are numbers that the caller passes."""
    data, sizes = node.inputs
    contents = None if sizes is None else context.get_symbolic_value(sizes)
    if data is None or contents is None:
        return
    source = [] if data.shape is None else _named(context, data.shape)
    dims: list[Dim] = []
    for axis, (size, given) in enumerate(zip(contents, is_given, strict=True)):
        is_copied = size == 0 and not _int(node, "allowzero") and axis < len(source)
        unknown = given or size in (0, -1)
        dims.append(source[axis] if is_copied else context.new_symbolic_dim() if unknown else size)
    _set(context, node, dims)


def set_inferred_size(context: osi.ShapeInferenceContext, node: ir.Node) -> None:
    """Set the output of Reshape with one size of -1 that follows from symbols.

    The library divides the number of elements by the other sizes, which says nothing where one of these is zero. The
    size is the factor that they leave instead.
    """
    data, sizes = node.inputs
    contents = None if sizes is None else context.get_symbolic_value(sizes)
    if data is None or data.shape is None or contents is None or contents.count(-1) != 1:
        return
    source = _named(context, data.shape)
    is_copied = [size == 0 and not _int(node, "allowzero") and axis < len(source) for axis, size in enumerate(contents)]
    dims = [source[axis] if is_copied[axis] else size for axis, size in enumerate(contents)]
    known = math.prod(dim for dim in dims if dim != -1)
    size = divide_size(math.prod(source), settle(known))
    if size is not None:
        _set(context, node, [size if dim == -1 else dim for dim in dims])


def set_filled(context: osi.ShapeInferenceContext, node: ir.Node) -> None:
    """The output of ConstantOfShape: the contents of its input, of which at least the number is known most often."""
    sizes = node.inputs[0]
    contents = None if sizes is None else context.get_symbolic_value(sizes)
    count = None if sizes is None or sizes.shape is None or len(sizes.shape) != 1 else sizes.shape[0]
    if contents is None and isinstance(count, int):
        contents = [context.new_symbolic_dim() for _ in range(count)]
    if contents is not None:
        _set(context, node, contents)


def set_range(context: osi.ShapeInferenceContext, node: ir.Node) -> None:
    """The output of Range between sizes: the library takes those to be positive, and some are 0."""
    known = [None if value is None else context.get_symbolic_value(value) for value in node.inputs]
    numbers = [contents[0] for contents in known if contents is not None and len(contents) == 1]
    if len(numbers) != 3 or all(isinstance(number, int) for number in numbers):
        return
    start, limit, step = numbers
    if isinstance(step, int) and step > 0:
        _set(context, node, [max_of(-((start - limit) // step), 0)])


def set_flat(context: osi.ShapeInferenceContext, node: ir.Node) -> None:
    """The output of Flatten, which has two dimensions whatever comes in."""
    if is_hidden(node.inputs[0]):
        _set(context, node, [context.new_symbolic_dim(), context.new_symbolic_dim()])


def is_hidden(value: ir.Value | None) -> bool:
    """Whether a value is there of which not even the rank is known."""
    return value is not None and value.shape is None


def set_full_reduction(context: osi.ShapeInferenceContext, node: ir.Node) -> None:
    """The output of a reduction over all axes that keeps none of them: a scalar, whatever comes in."""
    axes = node.attributes.get("axes") or (node.inputs[1] if len(node.inputs) > 1 else None)
    keeps = "keepdims" not in node.attributes or _int(node, "keepdims")
    if axes is None and not keeps and not _int(node, "noop_with_empty_axes"):
        _set(context, node, [])


def _set(context: osi.ShapeInferenceContext, node: ir.Node, dims: Sequence[Dim]) -> None:
    context.set_shape(node.outputs[0], ir.Shape(dims))


def _named(context: osi.ShapeInferenceContext, shape: ir.Shape) -> list[Dim]:
    return list(context.name_anonymous_dims_in_shape(shape).dims)


def _int(node: ir.Node, name: str) -> int:
    attribute = node.attributes.get(name)
    return 0 if attribute is None else attribute.as_int()


def _text(node: ir.Node, name: str) -> str:
    attribute = node.attributes.get(name)
    return "NOTSET" if attribute is None else attribute.as_string()


def _ints(node: ir.Node, name: str, default: list[int]) -> list[int]:
    attribute = node.attributes.get(name)
    return default if attribute is None else list(attribute.as_ints())
