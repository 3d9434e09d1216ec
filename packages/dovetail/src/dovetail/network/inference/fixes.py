"""What shape inference lacks: types of loop bodies, and operators whose parameters only the run knows.

onnx-shape-inference takes the default for a parameter it cannot see (equal parts for Split, all ones for Squeeze) and
loops to run to their count, drops the axis of Unique, looks at no sizes of ConstantOfShape that are computed, guesses
where an input has no known rank, and lets shapes pass that cannot be broadcast. Sizes planned from that would be wrong.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping
from typing import Final

import onnx_ir as ir
import onnx_shape_inference as osi

from dovetail.network.inference.choices import correct_choice
from dovetail.network.inference.context import MAX_CONTENTS, BoundedContext, find_inputs, keep_type
from dovetail.network.inference.dims import (
    broadcast_dims,
    is_hidden,
    set_broadcast,
    set_filled,
    set_flat,
    set_full_reduction,
    set_fused_matmul,
    set_inferred_size,
    set_matmul,
    set_pool,
    set_range,
    set_reshape,
)
from dovetail.network.inference.ml import ML_DOMAIN, correct_feature_extractor
from dovetail.network.inference.slices import correct_slice
from dovetail.network.value_types import describe_type, has_no_shape

__all__ = ["CORRECTIONS", "type_body_inputs"]


Correction = Callable[[BoundedContext, ir.Node], bool]


def type_body_inputs(node: ir.Node) -> None:
    """Give the inputs of a Loop or Scan body the element types of what is passed in, where they have none."""
    body = node.attributes.get("body")
    if node.domain != "" or node.op_type not in ("Loop", "Scan") or body is None:
        return
    formals, actuals = list(body.as_graph().inputs), list(node.inputs)
    if node.op_type == "Loop":
        _type_loop_counters(formals[:2])
        formals, actuals = formals[2:], actuals[2:]
    for formal, actual in zip(formals, actuals, strict=False):
        if formal.type is None and actual is not None:
            formal.type = actual.type


def _type_loop_counters(values: list[ir.Value]) -> None:
    for value, dtype in zip(values, (ir.DataType.INT64, ir.DataType.BOOL), strict=False):
        if value.type is None:
            value.type = ir.TensorType(dtype)
        if value.shape is None:
            value.shape = ir.Shape(())


def _correct_split(context: osi.ShapeInferenceContext, node: ir.Node) -> bool:
    data, sizes = find_inputs(node, 2)
    if data is None or sizes is None or ir.convenience.get_const_tensor(sizes) is not None:
        return False
    parts = context.get_symbolic_value(sizes) or []
    for index, value in enumerate(node.outputs):
        if data.dtype is not None:
            context.set_dtype(value, data.dtype)
        if data.shape is not None:
            dims = list(data.shape)
            axis = _axis(node, len(dims))
            dims[axis] = parts[index] if index < len(parts) else context.new_symbolic_dim()
            context.set_shape(value, context.name_anonymous_dims_in_shape(ir.Shape(dims)))
    return True


def _correct_concat(context: osi.ShapeInferenceContext, node: ir.Node) -> bool:
    """A long vector: its length, without a name for each of its elements."""
    lengths = [value.shape[0] for value in node.inputs if value is not None and value.shape and len(value.shape) == 1]
    if len(lengths) != len(node.inputs) or not any(isinstance(n, int) and n > MAX_CONTENTS for n in lengths):
        return False
    if node.inputs[0] is not None and node.inputs[0].dtype is not None:
        context.set_dtype(node.outputs[0], node.inputs[0].dtype)
    total = functools.reduce(operator.add, lengths)
    context.set_shape(node.outputs[0], context.name_anonymous_dims_in_shape(ir.Shape([total])))
    return True


def _correct_reshape(context: BoundedContext, node: ir.Node) -> bool:
    data, sizes = find_inputs(node, 2)
    if data is not None and data.dtype is not None:
        context.set_dtype(node.outputs[0], data.dtype)  # the library forgets it when the new rank is open
    count = sizes.shape[0] if sizes is not None and sizes.shape and len(sizes.shape) == 1 else 0
    if isinstance(count, int) and count > MAX_CONTENTS:
        raise ValueError(f"a shape of {count} dimensions")
    contents = (None if sizes is None else context.get_symbolic_value(sizes)) or []
    given = [context.is_given(size) for size in contents]
    if any(given):
        set_reshape(context, node, given)
    else:
        set_inferred_size(context, node)
    for axis in [axis for axis, is_given in enumerate(given) if is_given]:
        context.assume(node, axis, contents[axis], 1)  # 0 and -1 are no sizes
    return False


def _correct_expand(context: BoundedContext, node: ir.Node) -> bool:
    """Take numbers that the caller passes for sizes only where they are: 0 makes 1 to 0, of which no maximum knows."""
    data, target = find_inputs(node, 2)
    contents = None if target is None else context.get_symbolic_value(target)
    if data is None or data.shape is None:
        return keep_type(context, node)  # the library takes the target for the result
    if contents is None:
        return False
    dims = broadcast_dims([list(context.name_anonymous_dims_in_shape(data.shape)), contents])
    given = [axis for axis, dim in enumerate(dims) if context.is_given(dim)]
    opened = [context.new_symbolic_dim() if axis in given else dim for axis, dim in enumerate(dims)]
    context.set_shape(node.outputs[0], ir.Shape(opened))
    for axis in given:
        context.assume(node, axis, dims[axis], 1)
    return False


def _correct_squeeze(context: osi.ShapeInferenceContext, node: ir.Node) -> bool:
    data, axes = find_inputs(node, 2)
    if data is None or (axes is None and not _may_squeeze_open_dims(node, data)):
        return False
    if axes is not None and ir.convenience.get_const_tensor(axes) is not None:
        return False
    if data.dtype is not None:
        context.set_dtype(node.outputs[0], data.dtype)
    if axes is None:
        return True  # even the rank is known in the run only
    count = axes.shape[0] if axes.shape is not None and len(axes.shape) == 1 else None
    if data.shape is not None and isinstance(count, int) and count <= len(data.shape):
        dims = [context.new_symbolic_dim() for _ in range(len(data.shape) - count)]
        context.set_shape(node.outputs[0], ir.Shape(dims))
    return True


def _may_squeeze_open_dims(node: ir.Node, data: ir.Value) -> bool:
    """Whether all dims of size 1 are to go, and not all dims are known."""
    return "axes" not in node.attributes and data.shape is not None and not data.shape.is_static()


def _correct_unique(context: osi.ShapeInferenceContext, node: ir.Node) -> bool:
    data, _ = find_inputs(node, 2)
    if data is None or "axis" not in node.attributes:
        return False
    if data.dtype is not None:
        context.set_dtype(node.outputs[0], data.dtype)
    for value in node.outputs[1:]:
        context.set_dtype(value, ir.DataType.INT64)
    if data.shape is None:
        return True
    dims, found = list(data.shape), context.new_symbolic_dim()
    axis = _axis(node, len(dims))
    shapes = ([*dims[:axis], found, *dims[axis + 1 :]], [found], [dims[axis]], [found])
    for value, shape in zip(node.outputs, shapes, strict=False):
        context.set_shape(value, context.name_anonymous_dims_in_shape(ir.Shape(shape)))
    return True


def _correct_compress(context: osi.ShapeInferenceContext, node: ir.Node) -> bool:
    return "axis" in node.attributes and is_hidden(node.inputs[0]) and keep_type(context, node)


def _correct_attention(context: osi.ShapeInferenceContext, node: ir.Node) -> bool:
    """Give no shapes when that of a query, key, value or past one is not known; the library guesses it."""
    if not any(is_hidden(node.inputs[index]) for index in (0, 1, 2, 4, 5) if index < len(node.inputs)):
        return False
    for value, source in zip(node.outputs, (0, 1, 2, 0), strict=False):
        given = node.inputs[source]
        if given is not None and given.dtype is not None:
            context.set_dtype(value, given.dtype)
    return True


def _correct_resize(context: osi.ShapeInferenceContext, node: ir.Node) -> bool:
    """Leave sizes open that follow from the aspect ratio: the library rounds them down, and forgets open dims."""
    data = node.inputs[0]
    policy = node.attributes.get("keep_aspect_ratio_policy")
    if data is None or data.shape is None or policy is None or policy.as_string() == "stretch":
        return False
    rank = len(data.shape)
    axes = [axis % rank for axis in node.attributes["axes"].as_ints()] if "axes" in node.attributes else range(rank)
    dims = [context.new_symbolic_dim() if axis in axes else dim for axis, dim in enumerate(data.shape)]
    context.set_shape(node.outputs[0], context.name_anonymous_dims_in_shape(ir.Shape(dims)))
    return keep_type(context, node)


def _correct_top_k(context: BoundedContext, node: ir.Node) -> bool:
    """TopK before opset 10, which the library does not know: the count is an attribute."""
    data, count = node.inputs[0], node.attributes.get("k")
    if data is None or count is None:
        return False
    if data.shape is not None:
        dims = list(context.name_anonymous_dims_in_shape(data.shape))
        axis = node.attributes["axis"].as_int() if "axis" in node.attributes else -1
        dims[axis] = count.as_int()
        for value in node.outputs:
            context.set_shape(value, ir.Shape(dims))
    for value in node.outputs[1:]:
        context.set_dtype(value, ir.DataType.INT64)
    return keep_type(context, node)


def _correct_loop(context: osi.ShapeInferenceContext, node: ir.Node) -> bool:
    """Loops with or without count and condition; one that may end early has scan outputs of unknown length."""
    body = node.attributes["body"].as_graph()
    results, num_state = list(body.outputs)[1:], len(node.inputs) - 2
    starts = [None if start is None else start.shape for start in node.inputs[2:]]
    pairs = list(zip(starts, [result.shape for result in results], strict=False))
    # The body was inferred for its first run; a shape that changes there may change all others in the next.
    is_steady = all(
        has_no_shape(result) or (start is not None and start == shape)
        for (start, shape), result in zip(pairs, results, strict=False)
    )
    for value, (start, shape) in zip(node.outputs, pairs, strict=False):
        if start is not None and shape is not None and len(start) == len(shape):
            context.set_shape(value, shape if is_steady else _open_shape(context, len(shape)))
    length = _loop_length(context, node)
    for value, result in zip(node.outputs, results, strict=False):
        _set_type(context, value, result)
    for value, result in zip(node.outputs[num_state:], results[num_state:], strict=False):
        if result.shape is not None:
            dims = result.shape if is_steady else _open_shape(context, len(result.shape))
            context.set_shape(value, ir.Shape([length, *dims]))
    return True


def _open_shape(context: osi.ShapeInferenceContext, rank: int) -> ir.Shape:
    return ir.Shape([context.new_symbolic_dim() for _ in range(rank)])


def _set_type(context: osi.ShapeInferenceContext, value: ir.Value, source: ir.Value) -> None:
    if source.type is not None and has_no_shape(source):
        context.set_type(value, source.type)
    elif source.dtype is not None:
        context.set_dtype(value, source.dtype)


def _correct_if(context: BoundedContext, node: ir.Node) -> bool:
    """When one branch does not know a shape, nobody does; the library takes that of the other."""
    bodies = [node.attributes[name].as_graph() for name in ("then_branch", "else_branch")]
    for index, (value, *results) in enumerate(zip(node.outputs, *(body.outputs for body in bodies), strict=True)):
        types = sorted({describe_type(result.type) for result in results if result.type is not None})
        if len(types) > 1:
            raise ValueError(f"the branches give output {index} as {types[0]} and as {types[1]}")
        _set_type(context, value, next((result for result in results if result.type is not None), results[0]))
        first, second = (result.shape for result in results)
        if first is not None and second is not None and len(first) == len(second):
            context.set_shape(value, ir.Shape([_merge(context, *pair) for pair in zip(first, second, strict=True)]))
    return True


def _merge(context: BoundedContext, one: int | ir.SymbolicDim, other: int | ir.SymbolicDim) -> int | ir.SymbolicDim:
    is_known = isinstance(one, int) or one.value is not None
    unknown: ir.SymbolicDim = context.new_symbolic_dim()
    return one if is_known and one == other else unknown


def _loop_length(context: osi.ShapeInferenceContext, node: ir.Node) -> int | ir.SymbolicDim:
    """How often a loop runs: its count when nothing else can end it, else a dimension that only the run knows."""
    count = node.inputs[0] if node.inputs else None
    known = None if count is None or not _runs_to_its_count(node) else context.get_symbolic_value(count)
    unknown: ir.SymbolicDim = context.new_symbolic_dim()
    return known[0] if known else unknown


def _runs_to_its_count(node: ir.Node) -> bool:
    body = node.attributes["body"].as_graph()
    start = node.inputs[1] if len(node.inputs) > 1 else None
    return (start is None or _is_true(start)) and (_is_true(body.outputs[0]) or _is_passed_on(body))


def _is_passed_on(body: ir.Graph) -> bool:
    """Whether the body returns the condition it was given, as it is or through Identity."""
    value: ir.Value | None = body.outputs[0]
    while value is not None and value is not body.inputs[1]:
        producer = value.producer()
        value = producer.inputs[0] if producer is not None and producer.op_type == "Identity" else None
    return value is not None


def _is_true(value: ir.Value) -> bool:
    tensor = ir.convenience.get_const_tensor(value)
    return tensor is not None and bool(tensor.numpy().all())


def _correct_broadcast(context: BoundedContext, node: ir.Node) -> bool:
    """Raise when two inputs can never be broadcast to each other, of which the library takes no notice."""
    if "broadcast" in node.attributes:
        return False  # before opset 7 the second input could be placed at any axis
    sizes: dict[int, int] = {}
    for value in node.inputs:
        for place, dim in enumerate(reversed(list(value.shape or ()) if value is not None else [])):
            if isinstance(dim, int) and dim != 1 and sizes.setdefault(place, dim) != dim:
                raise ValueError(f"dimensions {sizes[place]} and {dim} cannot be broadcast to each other")
    set_broadcast(context, node)
    return False


def _correct_where(context: BoundedContext, node: ir.Node) -> bool:
    return _correct_broadcast(context, node) or correct_choice(context, node)


def _first(set_dims: Callable[[osi.ShapeInferenceContext, ir.Node], None]) -> Correction:
    """Set what is known better, then let the library do the rest."""

    def correct(context: BoundedContext, node: ir.Node) -> bool:
        set_dims(context, node)
        return False

    return correct


def _axis(node: ir.Node, rank: int) -> int:
    attribute = node.attributes.get("axis")
    axis = 0 if attribute is None else attribute.as_int()
    if not -rank <= axis < rank:
        raise ValueError(f"axis {axis} is out of range for {rank} dimensions")
    return axis % rank


_REDUCING: Final = """ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum
    ReduceSumSquare"""
_BROADCASTING: Final = """Add And BitShift BitwiseAnd BitwiseOr BitwiseXor Div Equal Greater GreaterOrEqual Less
    LessOrEqual Max Mean Min Mod Mul Or Pow Sub Sum Where Xor"""

CORRECTIONS: Final[Mapping[tuple[str, str], Correction]] = {
    ("", "Attention"): _correct_attention,
    ("", "Compress"): _correct_compress,
    ("", "Concat"): _correct_concat,
    ("", "If"): _correct_if,
    ("", "Loop"): _correct_loop,
    ("", "Reshape"): _correct_reshape,
    ("", "Slice"): correct_slice,
    ("", "Split"): _correct_split,
    ("", "Squeeze"): _correct_squeeze,
    ("", "TopK"): _correct_top_k,
    ("", "Unique"): _correct_unique,
    ("", "ConstantOfShape"): _first(set_filled),
    ("", "Expand"): _correct_expand,
    ("", "Flatten"): _first(set_flat),
    ("", "Range"): _first(set_range),
    ("", "Resize"): _correct_resize,
    ("ai.onnx.preview", "FlexAttention"): _correct_attention,
    ("com.microsoft", "FusedMatMul"): set_fused_matmul,
    (ML_DOMAIN, "ArrayFeatureExtractor"): correct_feature_extractor,
    ("", "MatMul"): _first(set_matmul),
    **{("", op): _first(set_pool) for op in ("AveragePool", "LpPool", "MaxPool")},
    **{("", op): _first(set_full_reduction) for op in _REDUCING.split()},
    **{("", op): _correct_broadcast for op in _BROADCASTING.split()},
    ("", "Where"): _correct_where,
}
"""Tried before the library's own inference; False means that it does well on this node."""
