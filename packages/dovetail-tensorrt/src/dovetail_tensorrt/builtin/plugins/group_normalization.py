"""GroupNormalizationPlugin: groups of channels of each instance with mean 0 and variance 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dovetail.expr import DimsExprs
from dovetail.plugin.fields import PluginFieldType
from dovetail.types import DataType
from dovetail_tensorrt.builtin.base import Array, BuiltinPlugin, Shape, agree, require
from dovetail_tensorrt.builtin.device.launch import DeviceBuffer, DeviceTensor, KernelLaunch
from dovetail_tensorrt.builtin.device.normalization import plan_normalization
from dovetail_tensorrt.builtin.fields import FieldRule, is_positive
from dovetail_tensorrt.builtin.host.normalization import normalize_groups

if TYPE_CHECKING:
    from dovetail.expr import IExprBuilder
    from dovetail.types import PluginTensorDesc

__all__ = ["GroupNormalizationPlugin"]


class GroupNormalizationPlugin(BuiltinPlugin):
    """(n, c, ...), scale (c,) and bias (c,) in; (n, c, ...) out."""

    name = "GroupNormalizationPlugin"
    versions = ("1",)
    rules = (
        FieldRule(name="eps", type=PluginFieldType.FLOAT32, default=1e-5, is_valid=is_positive, expected="more than 0"),
        FieldRule(name="num_groups", is_valid=is_positive, expected="1 or more"),
    )
    input_counts = (3,)

    def list_types(self, pos: int, first: DataType, num_inputs: int) -> Sequence[DataType]:
        """Everything is FP32."""
        return (DataType.FLOAT,)

    def make_output_shapes(self, inputs: Sequence[DimsExprs], builder: IExprBuilder) -> Sequence[DimsExprs]:
        """The shape of the input."""
        return [DimsExprs(inputs[0])]

    def check_shapes(self, shapes: Sequence[Shape]) -> None:
        """Channels that can be grouped, and a scale and a bias for each."""
        values, scale, bias = shapes
        require(self.name, len(values) >= 3, "the input has too few dimensions", "(n, c, ...)", values)
        groups = self.values["num_groups"]
        is_even = values[1] < 0 or values[1] % groups == 0
        require(self.name, is_even, "the channels cannot be grouped", f"a multiple of {groups}", values[1])
        for name, shape in (("scale", scale), ("bias", bias)):
            require(self.name, agree(shape, values[1:2]), f"'{name}' has another shape", values[1:2], shape)

    def compute(self, inputs: Sequence[Array], descs: Sequence[PluginTensorDesc]) -> Sequence[Array]:
        """Normalize on the host."""
        values, scale, bias = inputs
        return [normalize_groups(values, scale, bias, self.values["num_groups"], self.values["eps"])]

    def plan_launches(
        self, inputs: Sequence[DeviceTensor], outputs: Sequence[DeviceTensor], buffers: Sequence[DeviceBuffer]
    ) -> list[KernelLaunch]:
        """The kernels."""
        values, scale, bias = inputs
        groups, epsilon = self.values["num_groups"], self.values["eps"]
        return plan_normalization(values, scale.buffer, bias.buffer, outputs[0], groups, epsilon)
