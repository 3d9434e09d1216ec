"""The context of shape inference: what is known of the contents of tensors, within limits.

onnx-shape-inference follows the contents of integer tensors of any length, which would take minutes for a long vector,
takes the elements of an input to be sizes, although whoever passes them may mean something else, and lets dimensions
grow with the depth of a network.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import onnx_ir as ir
import onnx_shape_inference as osi

from dovetail.network.inference.dim_exprs import Dim, settle, symbols_in

__all__ = ["MAX_CONTENTS", "BoundedContext", "find_inputs", "keep_type"]

MAX_CONTENTS: Final = 256
"""Tensors with more elements than this are data and no shapes, so their contents are not followed."""


class BoundedContext(osi.ShapeInferenceContext):  # type: ignore[misc]  # the library has no types
    """The library's context, which follows the contents of short tensors only, and keeps dimensions short."""

    def __init__(self, opset_imports: Mapping[str, int]) -> None:
        super().__init__(opset_imports)
        self._given: set[str] = set()
        self.assumed: dict[str, tuple[Dim, int]] = {}
        """Open dims that have this size as long as no element of an input that it depends on is below that number."""

    def set_shape(self, value: ir.Value, shape: ir.Shape) -> bool:
        """Note the shape of a tensor, where it is not known better."""
        return bool(super().set_shape(value, ir.Shape([settle(dim) for dim in shape.dims])))

    def simplify_dim(self, dim: Dim, *, assume_divisible: bool = False) -> Dim:
        """The same dimension in short; that a division has no rest is not assumed, because it may be one of a pool."""
        return settle(dim)

    def get_symbolic_value(self, value: ir.Value) -> list[Dim] | None:
        """What is known of the contents of a tensor."""
        tensor = ir.convenience.get_const_tensor(value)
        if tensor is not None and tensor.size > MAX_CONTENTS:
            return None
        contents: list[Dim] | None = super().get_symbolic_value(value)
        return contents

    def set_symbolic_value(self, value: ir.Value, data: list[Dim]) -> None:
        """Note what the contents of a tensor are; numbers alone make it a constant."""
        if len(data) <= MAX_CONTENTS and _has_room(value, len(data)):
            super().set_symbolic_value(value, [settle(dim) for dim in data])

    def name_contents(self, value: ir.Value, names: list[str]) -> None:
        """Give the elements of an input names; what the caller passes there may be negative, as no dimension is."""
        self._given.update(names)
        self.set_symbolic_value(value, [ir.SymbolicDim(name) for name in names])

    def is_given(self, dim: Dim) -> bool:
        """Whether a number depends on elements of inputs."""
        return not self._given.isdisjoint(symbols_in(dim))

    def assume(self, node: ir.Node, axis: int, size: Dim, least: int) -> None:
        """Note the size of an open dimension of an output, which may have got its name in an earlier inference."""
        dim = None if node.outputs[0].shape is None else node.outputs[0].shape[axis]
        if isinstance(dim, ir.SymbolicDim) and dim.value is not None:
            self.assumed[dim.value] = (size, least)


def keep_type(context: osi.ShapeInferenceContext, node: ir.Node) -> bool:
    """Only the type of the first output is known: it is that of the first input."""
    data = node.inputs[0]
    if data is not None and data.dtype is not None:
        context.set_dtype(node.outputs[0], data.dtype)
    return True


def find_inputs(node: ir.Node, count: int) -> list[ir.Value | None]:
    """The first inputs of a node, None for those that are not there."""
    return [*node.inputs, *[None] * count][:count]


def _has_room(value: ir.Value, count: int) -> bool:
    """Whether a tensor has so many elements: of Where that broadcasts the library tells those of its narrow inputs."""
    return value.shape is None or (value.shape.is_static() and math.prod(value.shape.numpy()) == count)
