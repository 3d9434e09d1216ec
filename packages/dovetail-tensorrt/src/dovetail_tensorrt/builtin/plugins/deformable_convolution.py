"""ModulatedDeformConv2d: the convolution of Deformable ConvNets v2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dovetail.expr import DimsExprs
from dovetail.types import DataType
from dovetail_tensorrt.builtin.base import FLOATS, Array, BuiltinPlugin, Shape, agree, require
from dovetail_tensorrt.builtin.device.deformable import plan_convolution, size_convolution
from dovetail_tensorrt.builtin.device.launch import BufferSize, DeviceBuffer, DeviceTensor, KernelLaunch
from dovetail_tensorrt.builtin.fields import FieldRule, is_positive
from dovetail_tensorrt.builtin.host.deformable import DeformableOptions, convolve_deformably

if TYPE_CHECKING:
    from dovetail.expr import IExprBuilder
    from dovetail.types import PluginTensorDesc

__all__ = ["DeformableConvolutionPlugin"]


class DeformableConvolutionPlugin(BuiltinPlugin):
    """An image, offsets, masks, weights and an optional bias in; (n, o, oh, ow) out."""

    name = "ModulatedDeformConv2d"
    versions = ("1", "2")
    rules = (
        FieldRule(name="stride", default=(1, 1), count=2, is_valid=is_positive, expected="two numbers of 1 or more"),
        FieldRule(
            name="padding",
            default=(0, 0),
            count=2,
            is_valid=lambda value: min(value) >= 0,
            expected="two numbers of 0 or more",
        ),
        FieldRule(name="dilation", default=(1, 1), count=2, is_valid=is_positive, expected="two numbers of 1 or more"),
        FieldRule(name="group", default=1, is_valid=is_positive, expected="1 or more"),
        FieldRule(name="deformable_group", default=1, is_valid=is_positive, expected="1 or more"),
    )
    input_counts = (4, 5)

    def __init__(self, version: str, namespace: str, values: Mapping[str, Any]) -> None:
        super().__init__(version, namespace, values)
        self.options = DeformableOptions(**values)

    def list_types(self, pos: int, first: DataType, num_inputs: int) -> Sequence[DataType]:
        """Everything is of one floating-point type."""
        return FLOATS if pos == 0 else (first,)

    def make_output_shapes(self, inputs: Sequence[DimsExprs], builder: IExprBuilder) -> Sequence[DimsExprs]:
        """The size of the offsets, and a channel for each filter."""
        return [DimsExprs([inputs[0][0], inputs[3][0], inputs[1][2], inputs[1][3]])]

    def check_shapes(self, shapes: Sequence[Shape]) -> None:
        """Sizes that inputs share and that the parameters ask for."""
        images, offset, mask, weight = shapes[:4]
        for name, shape in (("x", images), ("offset", offset), ("mask", mask), ("weight", weight)):
            require(self.name, len(shape) == 4, f"'{name}' has another rank", 4, shape)
        self._check_channels(images, offset, mask, weight)
        if images[2] >= 0 and images[3] >= 0 and weight[2] > 0 and weight[3] > 0:
            size = tuple(self._find_size(images[2 + axis], weight[2 + axis], axis) for axis in (0, 1))
            require(self.name, agree(offset[2:], size), "the size of 'offset' does not fit", size, offset[2:])
        require(self.name, agree(mask[2:], offset[2:]), "the size of 'mask' does not fit", offset[2:], mask[2:])
        if len(shapes) == 5:
            require(self.name, agree(shapes[4], weight[:1]), "the length of 'bias' does not fit", weight[0], shapes[4])

    def _check_channels(self, images: Shape, offset: Shape, mask: Shape, weight: Shape) -> None:
        options, taps = self.options, weight[2] * weight[3] if min(weight[2:]) >= 0 else -1
        for name, count, share in (
            ("x", images[1], options.group),
            ("x", images[1], options.deformable_group),
            ("weight", weight[0], options.group),
        ):
            require(self.name, count % share == 0 or count < 0, f"channels of '{name}' cannot be grouped", share, count)
        if images[1] >= 0:
            each = images[1] // options.group
            require(self.name, weight[1] in (each, -1), "'weight' has another number of inputs", each, weight[1])
        for name, shape, each in (("offset", offset, 2), ("mask", mask, 1)):
            wanted = each * options.deformable_group * taps if taps >= 0 else -1
            require(self.name, agree(shape[:1], images[:1]), f"'{name}' has another batch", images[0], shape[0])
            require(
                self.name,
                -1 in (wanted, shape[1]) or shape[1] == wanted,
                f"'{name}' has other channels",
                wanted,
                shape[1],
            )

    def _find_size(self, size: int, taps: int, axis: int) -> int:
        """Height or width of the output, as for any convolution; nothing fits in what is too small."""
        options = self.options
        reach = size + 2 * options.padding[axis] - options.dilation[axis] * (taps - 1) - 1
        return max(reach // options.stride[axis] + 1, 0)

    def compute(self, inputs: Sequence[Array], descs: Sequence[PluginTensorDesc]) -> Sequence[Array]:
        """Convolve on the host."""
        images, offset, mask, weight = inputs[:4]
        bias = inputs[4] if len(inputs) == 5 else None
        return [convolve_deformably(images, offset, mask, weight, bias, self.options)]

    def list_buffers(self, shapes: Sequence[Shape], types: Sequence[DataType]) -> Sequence[BufferSize]:
        """What the kernels need."""
        return size_convolution(shapes, types[0])

    def plan_launches(
        self, inputs: Sequence[DeviceTensor], outputs: Sequence[DeviceTensor], buffers: Sequence[DeviceBuffer]
    ) -> list[KernelLaunch]:
        """The kernels."""
        return plan_convolution(inputs, outputs[0], buffers[0], self.options)
