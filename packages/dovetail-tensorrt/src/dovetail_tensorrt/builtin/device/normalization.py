"""Which kernel normalizes: a plan over addresses of a device. Cost: three passes, one program for each group."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from dovetail.types import DataType, TensorFormat
from dovetail_tensorrt.builtin.device.launch import Argument, DeviceTensor, KernelLaunch, ceil_div

__all__ = ["plan_normalization"]

_LANES: Final[Mapping[TensorFormat, int]] = {TensorFormat.DHWC8: 8, TensorFormat.CDHW32: 32}


def plan_normalization(
    values: DeviceTensor,
    scale: Argument,
    bias: Argument,
    out: DeviceTensor,
    num_groups: int,
    epsilon: float,
    negative_slope: float | None = None,
) -> list[KernelLaunch]:
    """Normalize each group of channels, in the format of the input."""
    images, channels = values.shape[:2]
    size, per_group = math.prod(values.shape[2:]), channels // num_groups
    is_quantized = values.buffer.type is DataType.INT8
    lanes, padded, strides = _find_layout(values.format, channels, size)
    launch = KernelLaunch(
        module="normalization",
        function="normalize",
        arguments={
            "values": values.buffer,
            "scale": scale,
            "bias": bias,
            "out": out.buffer,
            "channels": channels,
            "per_group": per_group,
            "size": size,
            "lanes": lanes,
            **strides,
            "epsilon": float(epsilon),
            "negative_slope": float(negative_slope or 0.0),
            "in_scale": float(values.scale) if is_quantized else 1.0,
            "out_scale": float(out.scale) if is_quantized else 1.0,
        },
        constants={"HAS_RELU": negative_slope is not None, "IS_QUANTIZED": is_quantized, "BLOCK": 2048},
        grid=(images, padded // per_group, 1),
        num_warps=8,
    )
    return [launch]


def _find_layout(layout: TensorFormat, channels: int, size: int) -> tuple[int, int, dict[str, int]]:
    """Channels a vector, channels with those that fill a vector up, and strides in elements."""
    vector = _LANES.get(layout, 1)
    padded = ceil_div(channels, vector) * vector
    if layout is TensorFormat.DHWC8:  # all channels of a pixel are one vector
        return padded, padded, {"image_stride": padded * size, "vector_stride": 0, "pixel_stride": padded}
    strides = {"image_stride": padded * size, "vector_stride": vector * size, "pixel_stride": vector}
    return vector, padded, strides
