"""TopkLastDim: the largest or smallest elements along an axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from dovetail.expr import DimsExprs
from dovetail.types import DataType
from dovetail_tensorrt.builtin.base import Array, BuiltinPlugin, Shape, require
from dovetail_tensorrt.builtin.device.launch import BufferSize, DeviceBuffer, DeviceTensor, KernelLaunch
from dovetail_tensorrt.builtin.device.selection import plan_topk, size_topk
from dovetail_tensorrt.builtin.fields import FieldRule, is_flag, is_positive
from dovetail_tensorrt.builtin.host.indexing import find_largest

if TYPE_CHECKING:
    from dovetail.expr import IExprBuilder
    from dovetail.types import PluginTensorDesc

__all__ = ["TopkLastDimPlugin"]

_TYPES: Final = (DataType.FLOAT, DataType.HALF, DataType.INT32, DataType.BF16)


class TopkLastDimPlugin(BuiltinPlugin):
    """A tensor in; its k largest or smallest elements along an axis, and their INT32 indices, out."""

    name = "TopkLastDim"
    versions = ("1",)
    rules = (
        FieldRule(
            name="type_id",
            is_valid=lambda value: value in map(int, _TYPES),
            expected=", ".join(f"{int(dtype)} ({dtype.name})" for dtype in _TYPES),
        ),
        FieldRule(name="k", is_valid=is_positive, expected="1 or more"),
        FieldRule(name="is_largest", is_valid=is_flag, expected="0 or 1"),
        FieldRule(name="axis", default=-1),
    )
    input_counts = (1,)
    num_outputs = 2

    def list_types(self, pos: int, first: DataType, num_inputs: int) -> Sequence[DataType]:
        """The type that the field names, and INT32 for indices."""
        return (DataType.INT32,) if pos == 2 else (DataType(self.values["type_id"]),)

    def get_output_data_types(self, input_types: Sequence[DataType]) -> Sequence[DataType]:
        """Values and indices."""
        return [input_types[0], DataType.INT32]

    def make_output_shapes(self, inputs: Sequence[DimsExprs], builder: IExprBuilder) -> Sequence[DimsExprs]:
        """The shape of the input with k elements along the axis."""
        dims = list(inputs[0])
        dims[self.values["axis"]] = builder.constant(self.values["k"])
        return [DimsExprs(dims), DimsExprs(dims)]

    def check_shapes(self, shapes: Sequence[Shape]) -> None:
        """The axis exists and has k elements."""
        (shape,), axis, count = shapes, self.values["axis"], self.values["k"]
        exists = -len(shape) <= axis < len(shape)
        require(self.name, exists, "the axis does not exist", f"{-len(shape)} to {len(shape) - 1}", axis)
        fits = shape[axis] < 0 or count <= shape[axis]
        require(self.name, fits, "field 'k' is larger than the axis", f"at most {shape[axis]}", count)

    def compute(self, inputs: Sequence[Array], descs: Sequence[PluginTensorDesc]) -> Sequence[Array]:
        """Select on the host."""
        is_largest = bool(self.values["is_largest"])
        return find_largest(inputs[0], self.values["k"], self.values["axis"], is_largest=is_largest)

    def list_buffers(self, shapes: Sequence[Shape], types: Sequence[DataType]) -> Sequence[BufferSize]:
        """What the kernels need."""
        return size_topk(shapes[0], self.values["k"], self.values["axis"])

    def plan_launches(
        self, inputs: Sequence[DeviceTensor], outputs: Sequence[DeviceTensor], buffers: Sequence[DeviceBuffer]
    ) -> list[KernelLaunch]:
        """The kernels."""
        count, axis, is_largest = self.values["k"], self.values["axis"], bool(self.values["is_largest"])
        found, indices = outputs
        return plan_topk(inputs[0], found, indices, buffers, count, axis, is_largest=is_largest)
