"""InstanceNormalization_TRT: each channel of each instance with mean 0 and variance 1, scaled and shifted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.expr import DimsExprs
from dovetail.formats import pack, unpack
from dovetail.plugin.fields import PluginFieldType
from dovetail.types import DataType, TensorFormat
from dovetail_tensorrt.builtin.base import FLOATS, Array, BuiltinPlugin, Shape, require
from dovetail_tensorrt.builtin.device.launch import DeviceBuffer, DeviceTensor, HostConstant, KernelLaunch
from dovetail_tensorrt.builtin.device.normalization import plan_normalization
from dovetail_tensorrt.builtin.fields import FieldRule, is_flag, is_positive
from dovetail_tensorrt.builtin.host.normalization import normalize_instances

if TYPE_CHECKING:
    from dovetail.expr import IExprBuilder
    from dovetail.types import DynamicPluginTensorDesc, PluginTensorDesc

__all__ = ["InstanceNormalizationPlugin"]


class InstanceNormalizationPlugin(BuiltinPlugin):
    """(n, c, ...) in and out; scale and bias of the channels are fields, and a leaky ReLU may follow."""

    name = "InstanceNormalization_TRT"
    versions = ("1", "2", "3")
    rules = (
        FieldRule(
            name="epsilon", type=PluginFieldType.FLOAT32, default=1e-5, is_valid=is_positive, expected="more than 0"
        ),
        FieldRule(name="scales", type=PluginFieldType.FLOAT32, count=0),
        FieldRule(name="bias", type=PluginFieldType.FLOAT32, count=0),
        FieldRule(name="relu", default=0, is_valid=is_flag, expected="0 or 1"),
        FieldRule(name="alpha", type=PluginFieldType.FLOAT32, default=0.0),
    )
    input_counts = (1,)

    def __init__(self, version: str, namespace: str, values: Mapping[str, Any]) -> None:
        super().__init__(version, namespace, values)
        scales, bias = values["scales"], values["bias"]
        require(self.name, len(scales) == len(bias), "'bias' has another length than 'scales'", len(scales), len(bias))
        self.scale, self.bias = np.array(scales, np.float32), np.array(bias, np.float32)
        self.negative_slope = values["alpha"] if values["relu"] else None

    def list_types(self, pos: int, first: DataType, num_inputs: int) -> Sequence[DataType]:
        """Floating point, or INT8 in volumes, which ``list_formats`` holds to one format."""
        return (*FLOATS, DataType.INT8) if pos == 0 else (first,)

    def list_formats(self, pos: int, in_out: Sequence[DynamicPluginTensorDesc], num_inputs: int) -> Any:
        """Linear; volumes also with their channels packed."""
        if pos:
            return (in_out[0].desc.format,)
        desc = in_out[0].desc
        is_volume = len(desc.dims) == 5
        if desc.type is DataType.INT8:
            return (TensorFormat.CDHW32,) if is_volume else ()
        if desc.type is DataType.HALF and is_volume:
            return (TensorFormat.LINEAR, TensorFormat.DHWC8)
        return (TensorFormat.LINEAR,)

    def make_output_shapes(self, inputs: Sequence[DimsExprs], builder: IExprBuilder) -> Sequence[DimsExprs]:
        """The shape of the input."""
        return [DimsExprs(inputs[0])]

    def check_shapes(self, shapes: Sequence[Shape]) -> None:
        """As many channels as there are scales."""
        (shape,) = shapes
        require(self.name, len(shape) >= 3, "the input has too few dimensions", "(n, c, ...)", shape)
        fits = shape[1] in (-1, len(self.scale))
        require(self.name, fits, "the input has another number of channels", len(self.scale), shape[1])

    def compute(self, inputs: Sequence[Array], descs: Sequence[PluginTensorDesc]) -> Sequence[Array]:
        """Normalize on the host; INT8 is scaled to what it stands for and back."""
        before, after = descs
        values = unpack(inputs[0], before.format, before.dims).astype(np.float32)
        if before.type is DataType.INT8:
            values = values * np.float32(before.scale)
        result = normalize_instances(values, self.scale, self.bias, self.values["epsilon"], self.negative_slope)
        if after.type is DataType.INT8:
            result = np.clip(np.rint(result / np.float32(after.scale)), -128, 127)
        return [pack(result, after.format)]

    def plan_launches(
        self, inputs: Sequence[DeviceTensor], outputs: Sequence[DeviceTensor], buffers: Sequence[DeviceBuffer]
    ) -> list[KernelLaunch]:
        """The kernels."""
        scale, bias = HostConstant(self.scale.tobytes()), HostConstant(self.bias.tobytes())
        groups, epsilon = inputs[0].shape[1], self.values["epsilon"]
        return plan_normalization(inputs[0], scale, bias, outputs[0], groups, epsilon, self.negative_slope)
