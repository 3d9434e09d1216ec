"""ScatterElements: ONNX's operator with a reduction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dovetail.expr import DimsExprs
from dovetail.plugin.fields import PluginFieldType
from dovetail.types import DataType
from dovetail_tensorrt.builtin.base import INDICES, Array, BuiltinPlugin, Shape, require
from dovetail_tensorrt.builtin.device.indexing import plan_scatter, size_scatter
from dovetail_tensorrt.builtin.device.launch import BufferSize, DeviceBuffer, DeviceTensor, KernelLaunch
from dovetail_tensorrt.builtin.fields import FieldRule
from dovetail_tensorrt.builtin.host.indexing import REDUCTIONS, scatter_elements

if TYPE_CHECKING:
    from dovetail.expr import IExprBuilder
    from dovetail.types import PluginTensorDesc

__all__ = ["ScatterElementsPlugin"]

_TYPES = (DataType.FLOAT, DataType.HALF, DataType.BF16, DataType.INT32, DataType.INT64)


class ScatterElementsPlugin(BuiltinPlugin):
    """Data, indices and updates in; data with the updates reduced into it out."""

    name = "ScatterElements"
    versions = ("1", "2")
    rules = (
        FieldRule(name="axis", default=0),
        FieldRule(
            name="reduction",
            type=PluginFieldType.CHAR,
            is_valid=lambda value: value in REDUCTIONS,
            expected=", ".join(REDUCTIONS),
        ),
    )
    input_counts = (3,)

    def list_types(self, pos: int, first: DataType, num_inputs: int) -> Sequence[DataType]:
        """Indices are INT64, or INT32 as ONNX allows it."""
        if pos == 1:
            return INDICES
        return _TYPES if pos == 0 else (first,)

    def make_output_shapes(self, inputs: Sequence[DimsExprs], builder: IExprBuilder) -> Sequence[DimsExprs]:
        """The shape of the data."""
        return [DimsExprs(inputs[0])]

    def check_shapes(self, shapes: Sequence[Shape]) -> None:
        """Indices and updates of one shape, with the rank of the data and no larger than it but along the axis."""
        data, indices, updates = shapes
        rank, axis = len(data), self.values["axis"]
        require(
            self.name, rank >= 1 and -rank <= axis < rank, "the axis does not exist", f"{-rank} to {rank - 1}", axis
        )
        require(self.name, len(indices) == rank, "'indices' has another rank than 'data'", rank, len(indices))
        same = len(updates) == rank and all(
            -1 in pair or pair[0] == pair[1] for pair in zip(indices, updates, strict=True)
        )
        require(self.name, same, "'updates' has another shape than 'indices'", indices, updates)
        for number, (limit, size) in enumerate(zip(data, indices, strict=True)):
            fits = number == axis % rank or -1 in (limit, size) or size <= limit
            require(self.name, fits, f"'indices' is larger than 'data' along axis {number}", limit, size)

    def compute(self, inputs: Sequence[Array], descs: Sequence[PluginTensorDesc]) -> Sequence[Array]:
        """Scatter on the host; half precision is summed in FP32 and rounded once."""
        data, indices, updates = inputs
        return [scatter_elements(data, indices, updates, self.values["axis"], self.values["reduction"])]

    def list_buffers(self, shapes: Sequence[Shape], types: Sequence[DataType]) -> Sequence[BufferSize]:
        """What the kernels need."""
        return size_scatter(shapes[0], types[0])

    def plan_launches(
        self, inputs: Sequence[DeviceTensor], outputs: Sequence[DeviceTensor], buffers: Sequence[DeviceBuffer]
    ) -> list[KernelLaunch]:
        """The kernels."""
        return plan_scatter(inputs, outputs[0], buffers, self.values["axis"], self.values["reduction"])
