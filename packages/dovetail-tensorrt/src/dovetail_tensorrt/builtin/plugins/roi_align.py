"""ROIAlign_TRT: regions of a feature map, each pooled to one size, as ONNX's RoiAlign defines it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dovetail.expr import DimsExprs
from dovetail.plugin.fields import PluginFieldType
from dovetail.types import DataType
from dovetail_tensorrt.builtin.base import FLOATS, INDICES, Array, BuiltinPlugin, Shape, agree, require
from dovetail_tensorrt.builtin.device.launch import DeviceBuffer, DeviceTensor, KernelLaunch
from dovetail_tensorrt.builtin.device.regions import plan_regions
from dovetail_tensorrt.builtin.fields import FieldRule, is_flag, is_positive
from dovetail_tensorrt.builtin.host.regions import RoiOptions, align_regions

if TYPE_CHECKING:
    from dovetail.expr import IExprBuilder
    from dovetail.types import PluginTensorDesc

__all__ = ["RoiAlignPlugin"]


class RoiAlignPlugin(BuiltinPlugin):
    """A feature map, regions and the image of each region in; pooled regions out."""

    name = "ROIAlign_TRT"
    versions = ("1", "2")
    rules = (
        FieldRule(name="coordinate_transformation_mode", default=1, is_valid=is_flag, expected="0 or 1"),
        FieldRule(name="mode", default=1, is_valid=is_flag, expected="0 for max, 1 for average"),
        FieldRule(name="output_height", default=1, is_valid=is_positive, expected="1 or more"),
        FieldRule(name="output_width", default=1, is_valid=is_positive, expected="1 or more"),
        FieldRule(name="sampling_ratio", default=0, is_valid=lambda value: value >= 0, expected="0 or more"),
        FieldRule(
            name="spatial_scale",
            type=PluginFieldType.FLOAT32,
            default=1.0,
            is_valid=is_positive,
            expected="more than 0",
        ),
    )
    input_counts = (3,)

    def __init__(self, version: str, namespace: str, values: Mapping[str, Any]) -> None:
        super().__init__(version, namespace, values)
        self.options = RoiOptions(
            height=values["output_height"],
            width=values["output_width"],
            sampling_ratio=values["sampling_ratio"],
            spatial_scale=values["spatial_scale"],
            has_half_pixel=bool(values["coordinate_transformation_mode"]),
            is_average=bool(values["mode"]),
        )

    def list_types(self, pos: int, first: DataType, num_inputs: int) -> Sequence[DataType]:
        """Indices are INT32, or INT64 as ONNX has them; all others are of one floating-point type."""
        if pos == 2:
            return INDICES
        return FLOATS if pos == 0 else (first,)

    def make_output_shapes(self, inputs: Sequence[DimsExprs], builder: IExprBuilder) -> Sequence[DimsExprs]:
        """A map for each region."""
        height, width = builder.constant(self.options.height), builder.constant(self.options.width)
        return [DimsExprs([inputs[1][0], inputs[0][1], height, width])]

    def check_shapes(self, shapes: Sequence[Shape]) -> None:
        """Images (n, c, h, w), regions (r, 4) and indices (r,)."""
        images, regions, batch = shapes
        require(self.name, len(images) == 4, "the shape of 'X' does not fit", "(n, c, h, w)", images)
        is_regions = len(regions) == 2 and regions[1] in (4, -1)
        require(self.name, is_regions, "the shape of 'rois' does not fit", "(r, 4)", regions)
        is_batch = len(batch) == 1 and agree(batch, regions[:1])
        require(self.name, is_batch, "the shape of 'batch_indices' does not fit", f"({regions[0]},)", batch)

    def compute(self, inputs: Sequence[Array], descs: Sequence[PluginTensorDesc]) -> Sequence[Array]:
        """Pool on the host."""
        images, regions, batch = inputs
        return [align_regions(images, regions, batch, self.options)]

    def plan_launches(
        self, inputs: Sequence[DeviceTensor], outputs: Sequence[DeviceTensor], buffers: Sequence[DeviceBuffer]
    ) -> list[KernelLaunch]:
        """The kernels."""
        images, regions, batch = inputs
        return plan_regions(images, regions, batch, outputs[0], self.options)
