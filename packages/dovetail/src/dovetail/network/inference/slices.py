"""The shapes of slices: ends that lie outside, contents of vectors, and the form before opset 10.

onnx-shape-inference takes the ends of a slice of an open dimension to be in range, loses an element of a vector that is
read backwards, and does not know the form with attributes.
"""

from __future__ import annotations

from typing import Final

import onnx_ir as ir

from dovetail.network.inference.context import BoundedContext, find_inputs, keep_type
from dovetail.network.inference.dim_exprs import Dim, max_of, min_of, settle

__all__ = ["correct_slice"]

_BEYOND_EVERYTHING: Final = 2**31 - 1
"""Bounds from here on mean the end of a dimension, as exporters write them."""


def correct_slice(context: BoundedContext, node: ir.Node) -> bool:
    """Clamp the ends of a slice to a dimension that only the run knows; the library takes them to be in range."""
    data, *bounds = find_inputs(node, 5)
    if "starts" in node.attributes:
        return _slice_by_attributes(context, node)
    if data is None or data.shape is None or bounds[0] is None or bounds[1] is None:
        return False
    starts, ends, axes, steps = (None if v is None else context.get_symbolic_value(v) for v in bounds)
    if _slice_contents(context, node, data, starts, ends, steps if bounds[3] is not None else [1]):
        return True
    hidden = [v is not None and known is None for v, known in zip(bounds, (starts, ends, axes, steps), strict=True)]
    if starts is None or ends is None or any(hidden):
        return False
    dims: list[Dim] = list(data.shape.dims)
    numbers = [axis for axis in axes or () if isinstance(axis, int)]
    if len(numbers) != len(axes or ()):
        dims = [context.new_symbolic_dim() for _ in dims]  # any axis may be cut
        context.set_shape_and_dtype(node.outputs[0], ir.Shape(dims), data.dtype)
        return True
    chosen = [axis % len(dims) for axis in numbers] if axes is not None else list(range(len(starts)))
    if all(isinstance(number, int) for number in (*starts, *ends, *(dims[axis] for axis in chosen))):
        return False
    assumed: dict[int, Dim] = {}
    for position, axis in enumerate(chosen):
        step = 1 if steps is None else steps[position]
        if not isinstance(step, int) or step < 1:
            return False
        dims[axis] = _sliced_dim(dims[axis], starts[position], ends[position], step)
        if context.is_given(starts[position]) or context.is_given(ends[position]):
            assumed[axis], dims[axis] = dims[axis], context.new_symbolic_dim()
    context.set_shape_and_dtype(node.outputs[0], ir.Shape(dims), data.dtype)
    for axis, size in assumed.items():
        context.assume(node, axis, size, 0)  # what is negative counts from the end
    return True


def _slice_by_attributes(context: BoundedContext, node: ir.Node) -> bool:
    """Slice before opset 10, which the library does not know."""
    data = node.inputs[0]
    if data is None or data.shape is None:
        return keep_type(context, node)
    starts, ends = (node.attributes[name].as_ints() for name in ("starts", "ends"))
    dims = list(context.name_anonymous_dims_in_shape(data.shape))
    axes = node.attributes["axes"].as_ints() if "axes" in node.attributes else range(len(starts))
    for axis, start, end in zip(axes, starts, ends, strict=True):
        dims[axis] = _sliced_dim(dims[axis], start, end, 1)
    context.set_shape(node.outputs[0], ir.Shape(dims))
    if len(starts) == 1:
        _slice_contents(context, node, data, list(starts), list(ends), [1])
    return keep_type(context, node)


def _slice_contents(context: BoundedContext, node: ir.Node, data: ir.Value, *bounds: list[Dim] | None) -> bool:
    """A part of a vector whose contents are known; the library loses the first element when it counts backwards."""
    contents = context.get_symbolic_value(data) if data.shape is not None and len(data.shape) == 1 else None
    numbers = [bound[0] for bound in bounds if bound is not None and len(bound) == 1 and isinstance(bound[0], int)]
    if contents is None or len(numbers) != len(bounds):
        return False
    start, end, step = numbers
    part = contents[start:end:step]
    context.set_shape_and_dtype(node.outputs[0], ir.Shape([len(part)]), data.dtype)
    context.set_symbolic_value(node.outputs[0], part)
    return True


def _sliced_dim(dim: Dim, start: Dim, end: Dim, step: int) -> Dim:
    first, last = _clamped(settle(dim), start), _clamped(settle(dim), end)
    size = last if first == 0 else max_of(last - first, 0)
    return size if step == 1 else (size + step - 1) // step


def _clamped(dim: Dim, bound: Dim) -> Dim:
    """A bound as Slice reads it: from the end when it is negative, and never beyond the dimension."""
    if bound == 0:
        return 0
    if isinstance(bound, int) and bound >= _BEYOND_EVERYTHING:
        return dim
    if isinstance(bound, int) and bound < 0:
        return 0 if bound <= -_BEYOND_EVERYTHING else max_of(dim + bound, 0)
    # Where the bound is negative, the size of the dimension is added to it.
    from_start = bound if isinstance(bound, int) else max_of(bound - max_of(min_of(bound, 0), -1) * dim, 0)
    return min_of(from_start, dim)
