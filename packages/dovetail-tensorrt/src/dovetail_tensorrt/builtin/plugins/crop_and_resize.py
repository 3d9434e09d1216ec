"""CropAndResizeDynamic: boxes of an image, each resized to one size, as TensorFlow does it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dovetail.expr import DimsExprs
from dovetail.types import DataType
from dovetail_tensorrt.builtin.base import Array, BuiltinPlugin, Shape, agree, require
from dovetail_tensorrt.builtin.device.launch import DeviceBuffer, DeviceTensor, KernelLaunch
from dovetail_tensorrt.builtin.device.regions import plan_crops
from dovetail_tensorrt.builtin.fields import FieldRule, is_positive
from dovetail_tensorrt.builtin.host.regions import crop_and_resize

if TYPE_CHECKING:
    from dovetail.expr import IExprBuilder
    from dovetail.types import PluginTensorDesc

__all__ = ["CropAndResizePlugin"]


class CropAndResizePlugin(BuiltinPlugin):
    """Images (n, c, h, w) and boxes (n, b, 4, 1) in; crops (n, b, c, crop height, crop width) out."""

    name = "CropAndResizeDynamic"
    versions = ("1", "2")
    rules = (
        FieldRule(name="crop_width", is_valid=is_positive, expected="1 or more"),
        FieldRule(name="crop_height", is_valid=is_positive, expected="1 or more"),
    )
    input_counts = (2,)

    def list_types(self, pos: int, first: DataType, num_inputs: int) -> Sequence[DataType]:
        """Everything is FP32."""
        return (DataType.FLOAT,)

    def make_output_shapes(self, inputs: Sequence[DimsExprs], builder: IExprBuilder) -> Sequence[DimsExprs]:
        """A crop for each box."""
        height, width = (builder.constant(self.values[name]) for name in ("crop_height", "crop_width"))
        return [DimsExprs([inputs[0][0], inputs[1][1], inputs[0][1], height, width])]

    def check_shapes(self, shapes: Sequence[Shape]) -> None:
        """Images (n, c, h, w), and boxes (n, b, 4) or (n, b, 4, 1)."""
        images, boxes = shapes
        require(self.name, len(images) == 4, "the shape of 'feature_maps' does not fit", "(n, c, h, w)", images)
        fits = len(boxes) in (3, 4) and boxes[2] in (4, -1) and all(size in (1, -1) for size in boxes[3:])
        fits = fits and agree(boxes[:1], images[:1])
        require(self.name, fits, "the shape of 'rois' does not fit", f"({images[0]}, b, 4, 1)", boxes)

    def compute(self, inputs: Sequence[Array], descs: Sequence[PluginTensorDesc]) -> Sequence[Array]:
        """Crop on the host."""
        images, boxes = inputs
        return [crop_and_resize(images, boxes, self.values["crop_height"], self.values["crop_width"])]

    def plan_launches(
        self, inputs: Sequence[DeviceTensor], outputs: Sequence[DeviceTensor], buffers: Sequence[DeviceBuffer]
    ) -> list[KernelLaunch]:
        """The kernels."""
        images, boxes = inputs
        return plan_crops(images, boxes, outputs[0])
