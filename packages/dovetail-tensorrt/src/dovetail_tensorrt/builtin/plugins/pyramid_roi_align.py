"""PyramidROIAlign_TRT: regions of a feature pyramid, each from the map that fits its area."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from dovetail.expr import DimsExprs
from dovetail.types import DataType
from dovetail_tensorrt.builtin.base import Array, BuiltinPlugin, Shape, agree, require
from dovetail_tensorrt.builtin.device.launch import DeviceBuffer, DeviceTensor, KernelLaunch
from dovetail_tensorrt.builtin.device.regions import plan_pyramid
from dovetail_tensorrt.builtin.fields import FieldRule, is_flag, is_positive
from dovetail_tensorrt.builtin.host.regions import PyramidOptions, align_pyramid

if TYPE_CHECKING:
    from dovetail.expr import IExprBuilder
    from dovetail.types import PluginTensorDesc

__all__ = ["PyramidRoiAlignPlugin"]

_LEGACY_SIZE: Final = 1024
_LEGACY_SCALE: Final = 224


class PyramidRoiAlignPlugin(BuiltinPlugin):
    """Regions (n, r, 4) and four maps in, finest first; pooled regions (n, r, c, p, p) out."""

    name = "PyramidROIAlign_TRT"
    versions = ("1",)
    rules = (
        FieldRule(name="fpn_scale", default=224, is_valid=is_positive, expected="1 or more"),
        FieldRule(name="pooled_size", default=7, is_valid=is_positive, expected="1 or more"),
        FieldRule(
            name="image_size",
            default=(1024, 1024),
            count=2,
            is_valid=is_positive,
            expected="height and width of 1 or more",
        ),
        FieldRule(name="roi_coords_absolute", default=1, is_valid=is_flag, expected="0 or 1"),
        FieldRule(name="roi_coords_swap", default=0, is_valid=is_flag, expected="0 or 1"),
        FieldRule(name="roi_coords_plusone", default=0, is_valid=is_flag, expected="0 or 1"),
        FieldRule(
            name="roi_coords_transform",
            default=2,
            is_valid=lambda value: value in (-1, 0, 1, 2),
            expected="-1, 0, 1 or 2",
        ),
        FieldRule(name="sampling_ratio", default=0, is_valid=lambda value: value >= 0, expected="0 or more"),
        FieldRule(name="legacy", default=0, is_valid=is_flag, expected="0 or 1"),
    )
    input_counts = (5,)

    def __init__(self, version: str, namespace: str, values: Mapping[str, Any]) -> None:
        super().__init__(version, namespace, values)
        self.options = _read_legacy(values) if values["legacy"] else _read_options(values)

    def list_types(self, pos: int, first: DataType, num_inputs: int) -> Sequence[DataType]:
        """Everything is FP32."""
        return (DataType.FLOAT,)

    def make_output_shapes(self, inputs: Sequence[DimsExprs], builder: IExprBuilder) -> Sequence[DimsExprs]:
        """A map for each region."""
        pooled = builder.constant(self.options.pooled_size)
        return [DimsExprs([inputs[0][0], inputs[0][1], inputs[1][1], pooled, pooled])]

    def check_shapes(self, shapes: Sequence[Shape]) -> None:
        """Regions (n, r, 4), and maps (n, c, h, w) with as many channels."""
        regions, *maps = shapes
        is_regions = len(regions) == 3 and regions[2] in (4, -1)
        require(self.name, is_regions, "the shape of 'rois' does not fit", "(n, r, 4)", regions)
        for number, features in enumerate(maps):
            fits = len(features) == 4 and agree(features[:1], regions[:1]) and agree(features[1:2], maps[0][1:2])
            where = f"the shape of feature map {number} does not fit"
            require(self.name, fits, where, f"({regions[0]}, {maps[0][1:2]}, h, w)", features)

    def compute(self, inputs: Sequence[Array], descs: Sequence[PluginTensorDesc]) -> Sequence[Array]:
        """Pool on the host."""
        return [align_pyramid(inputs[0], list(inputs[1:]), self.options)]

    def plan_launches(
        self, inputs: Sequence[DeviceTensor], outputs: Sequence[DeviceTensor], buffers: Sequence[DeviceBuffer]
    ) -> list[KernelLaunch]:
        """The kernels."""
        return plan_pyramid(inputs[0], inputs[1:], outputs[0], self.options)


def _read_options(values: Mapping[str, Any]) -> PyramidOptions:
    height, width = values["image_size"]
    return PyramidOptions(
        pooled_size=values["pooled_size"],
        image_size=(height, width),
        # A region of fpn_scale squared belongs to the third map; a quarter of that leaves the first.
        first_area=values["fpn_scale"] ** 2 / 4,
        is_absolute=bool(values["roi_coords_absolute"]),
        has_y_first=bool(values["roi_coords_swap"]),
        adds_one=bool(values["roi_coords_plusone"]),
        transform=values["roi_coords_transform"],
        sampling_ratio=values["sampling_ratio"],
    )


def _read_legacy(values: Mapping[str, Any]) -> PyramidOptions:
    """What networks of the UFF format expect: these parameters, whatever the fields say."""
    return PyramidOptions(
        pooled_size=values["pooled_size"],
        image_size=(_LEGACY_SIZE, _LEGACY_SIZE),
        first_area=_LEGACY_SCALE**2 * 2 / 16,
        is_absolute=False,
        has_y_first=True,
        adds_one=False,
        transform=-1,
        sampling_ratio=1,
    )
