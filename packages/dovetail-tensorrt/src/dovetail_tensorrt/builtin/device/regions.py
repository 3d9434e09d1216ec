"""Which kernels resample regions of feature maps: plans over addresses of a device.

Cost: each element of an output reads four elements for each point of its bin.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from dovetail_tensorrt.builtin.device.launch import DeviceTensor, KernelLaunch, ceil_div
from dovetail_tensorrt.builtin.host.regions import PyramidOptions, RoiOptions

__all__ = ["plan_crops", "plan_pyramid", "plan_regions"]

_MODULE: Final = "regions"
_BLOCK: Final = 256


def plan_regions(
    images: DeviceTensor, regions: DeviceTensor, batch: DeviceTensor, out: DeviceTensor, options: RoiOptions
) -> list[KernelLaunch]:
    """ROI align."""
    count, channels, height, width = images.shape
    launch = KernelLaunch(
        module=_MODULE,
        function="align_regions",
        arguments={
            "images": images.buffer,
            "regions": regions.buffer,
            "batch": batch.buffer,
            "out": out.buffer,
            "num_images": count,
            "channels": channels,
            "height": height,
            "width": width,
            "pooled_height": options.height,
            "pooled_width": options.width,
            "ratio": options.sampling_ratio,
            "spatial_scale": float(options.spatial_scale),
            "shift": 0.5 if options.has_half_pixel else 0.0,
        },
        constants={"IS_AVERAGE": options.is_average, "HAS_HALF_PIXEL": options.has_half_pixel, "BLOCK": _BLOCK},
        grid=_grid(out.shape[0], out.shape[1:]),
    )
    return [launch]


def plan_pyramid(
    regions: DeviceTensor, maps: Sequence[DeviceTensor], out: DeviceTensor, options: PyramidOptions
) -> list[KernelLaunch]:
    """ROI align over four maps."""
    sizes = {
        f"{name}{number}": features.shape[axis]
        for number, features in enumerate(maps)
        for name, axis in (("height", 2), ("width", 3))
    }
    launch = KernelLaunch(
        module=_MODULE,
        function="align_pyramid",
        arguments={
            "regions": regions.buffer,
            **{f"map{number}": features.buffer for number, features in enumerate(maps)},
            "out": out.buffer,
            "num_regions": regions.shape[1],
            "channels": maps[0].shape[1],
            **sizes,
            "image_height": options.image_size[0],
            "image_width": options.image_size[1],
            "pooled": options.pooled_size,
            "ratio": options.sampling_ratio,
            "first_area": float(options.first_area),
        },
        constants={
            "IS_ABSOLUTE": options.is_absolute,
            "HAS_Y_FIRST": options.has_y_first,
            "ADDS_ONE": options.adds_one,
            "TRANSFORM": options.transform,
            "BLOCK": _BLOCK,
        },
        grid=_grid(out.shape[0] * out.shape[1], out.shape[2:]),
    )
    return [launch]


def plan_crops(images: DeviceTensor, boxes: DeviceTensor, out: DeviceTensor) -> list[KernelLaunch]:
    """Crop and resize."""
    _, channels, height, width = images.shape
    launch = KernelLaunch(
        module=_MODULE,
        function="crop_boxes",
        arguments={
            "images": images.buffer,
            "boxes": boxes.buffer,
            "out": out.buffer,
            "num_boxes": boxes.shape[1],
            "channels": channels,
            "height": height,
            "width": width,
            "crop_height": out.shape[3],
            "crop_width": out.shape[4],
        },
        constants={"BLOCK": _BLOCK},
        grid=_grid(out.shape[0] * out.shape[1], out.shape[2:]),
    )
    return [launch]


def _grid(regions: int, shape: Sequence[int]) -> tuple[int, int, int]:
    return regions, ceil_div(math.prod(shape), _BLOCK), 1
