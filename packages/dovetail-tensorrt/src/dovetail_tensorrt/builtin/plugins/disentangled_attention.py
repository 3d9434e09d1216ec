"""DisentangledAttention_TRT: the attention matrix of DeBERTa from its three parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from dovetail.expr import DimsExprs
from dovetail.plugin.fields import PluginFieldType
from dovetail.types import DataType
from dovetail_tensorrt.builtin.base import FLOATS, Array, BuiltinPlugin, Shape, agree, require
from dovetail_tensorrt.builtin.device.attention import plan_disentangled
from dovetail_tensorrt.builtin.device.launch import DeviceBuffer, DeviceTensor, KernelLaunch
from dovetail_tensorrt.builtin.fields import FieldRule, is_positive
from dovetail_tensorrt.builtin.host.attention import add_disentangled

if TYPE_CHECKING:
    from dovetail.expr import IExprBuilder
    from dovetail.types import PluginTensorDesc

__all__ = ["DisentangledAttentionPlugin"]


class DisentangledAttentionPlugin(BuiltinPlugin):
    """Matrices (b, s, s), (b, s, 2 * span) and (b, s, 2 * span) in; (b, s, s) out."""

    name = "DisentangledAttention_TRT"
    versions = ("1", "2")
    rules = (
        FieldRule(name="span", is_valid=lambda value: value >= 2, expected="2 or more"),
        FieldRule(name="factor", type=PluginFieldType.FLOAT32, is_valid=is_positive, expected="more than 0"),
    )
    input_counts = (3,)

    def list_types(self, pos: int, first: DataType, num_inputs: int) -> Sequence[DataType]:
        """Everything is of one type."""
        return (*FLOATS, DataType.INT8) if pos == 0 else (first,)

    def make_output_shapes(self, inputs: Sequence[DimsExprs], builder: IExprBuilder) -> Sequence[DimsExprs]:
        """The shape of the first matrix."""
        return [DimsExprs(inputs[0])]

    def check_shapes(self, shapes: Sequence[Shape]) -> None:
        """Three matrices for as many heads, two of them with a column for each bucket."""
        content, *others = shapes
        fits = len(content) == 3 and agree(content[1:2], content[2:])
        require(self.name, fits, "the shape of 'data0' does not fit", "(b, s, s)", content)
        columns = 2 * self.values["span"]
        for name, shape in zip(("data1", "data2"), others, strict=True):
            fits = len(shape) == 3 and agree(shape[:2], content[:2]) and shape[2] in (columns, -1)
            require(self.name, fits, f"the shape of '{name}' does not fit", (*content[:2], columns), shape)

    def compute(self, inputs: Sequence[Array], descs: Sequence[PluginTensorDesc]) -> Sequence[Array]:
        """Add on the host; INT8 is scaled to what it stands for and back."""
        is_quantized = descs[0].type is DataType.INT8
        parts = [
            part.astype(np.float32) * np.float32(desc.scale) if is_quantized else part
            for part, desc in zip(inputs, descs[:3], strict=True)
        ]
        content, to_position, from_position = parts
        span, factor = self.values["span"], self.values["factor"]
        result = add_disentangled(content, to_position, from_position, span, factor)
        if is_quantized:
            result = np.clip(np.rint(result / np.float32(descs[3].scale)), -128, 127)
        return [result]

    def plan_launches(
        self, inputs: Sequence[DeviceTensor], outputs: Sequence[DeviceTensor], buffers: Sequence[DeviceBuffer]
    ) -> list[KernelLaunch]:
        """The kernels."""
        return plan_disentangled(inputs, outputs[0], self.values["span"], self.values["factor"])
