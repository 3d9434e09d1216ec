"""Which kernels sample at computed places: plans over addresses of a device.

Cost: attention reads four elements for each point and element of the output. Convolution samples once for each input
channel, weight and pixel into the workspace, for as many images as fit ``_STEP_BYTES``, and multiplies matrices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from dovetail.types import DataType
from dovetail_tensorrt.builtin.device.launch import (
    BufferSize,
    DeviceBuffer,
    DeviceTensor,
    KernelLaunch,
    ceil_div,
    element_grid,
)
from dovetail_tensorrt.builtin.host.deformable import DeformableOptions

__all__ = ["plan_attention", "plan_convolution", "size_convolution"]

_MODULE: Final = "deformable"
_BLOCK: Final = 256
_STEP_BYTES: Final = 256 << 20


def plan_attention(inputs: Sequence[DeviceTensor], out: DeviceTensor) -> list[KernelLaunch]:
    """Multi-scale deformable attention."""
    value, shapes, starts, places, weights = inputs
    launch = KernelLaunch(
        module=_MODULE,
        function="attend",
        arguments={
            "value": value.buffer,
            "shapes": shapes.buffer,
            "starts": starts.buffer,
            "places": places.buffer,
            "weights": weights.buffer,
            "out": out.buffer,
            "total": out.size,
            "length": value.shape[1],
            "queries": places.shape[1],
            "heads": value.shape[2],
            "depth": value.shape[3],
            "levels": places.shape[3],
            "points": places.shape[4],
        },
        constants={"BLOCK": _BLOCK},
        grid=element_grid(out.size, _BLOCK),
    )
    return [launch]


def _count_images(image_elements: int, dtype: DataType, images: int) -> int:
    """How many images are sampled at a time."""
    return max(1, min(images, _STEP_BYTES // max(image_elements * dtype.bits // 8, 1)))


def size_convolution(shapes: Sequence[Sequence[int]], dtype: DataType) -> list[BufferSize]:
    """What the weights are multiplied with, for as many images as are sampled at a time."""
    images, offset, weight = shapes[0], shapes[1], shapes[3]
    each = math.prod(images[1:2]) * math.prod(weight[2:]) * math.prod(offset[2:])
    return [(each * _count_images(each, dtype, images[0]), dtype)]


def plan_convolution(
    inputs: Sequence[DeviceTensor], out: DeviceTensor, columns: DeviceBuffer, options: DeformableOptions
) -> list[KernelLaunch]:
    """Modulated deformable convolution: sample, then multiply, for some images at a time."""
    images, weight = inputs[0], inputs[3]
    each = images.shape[1] * math.prod(weight.shape[2:]) * math.prod(out.shape[2:])
    step = _count_images(each, images.buffer.type, images.shape[0])
    launches = []
    for start in range(0, images.shape[0], step):
        part = [_cut(tensor, start, step) for tensor in (*inputs[:3], out)]
        launches += [
            _plan_sampling(part, columns, weight, options),
            _plan_product(part[3], columns, inputs, options),
        ]
    return launches


def _cut(tensor: DeviceTensor, start: int, count: int) -> DeviceTensor:
    """Some images of a tensor."""
    each = math.prod(tensor.shape[1:])
    address = tensor.buffer.address + start * each * tensor.buffer.type.bits // 8
    shape = (min(count, tensor.shape[0] - start), *tensor.shape[1:])
    return DeviceTensor(DeviceBuffer(address, tensor.buffer.type), shape, tensor.format, tensor.scale)


def _plan_sampling(
    part: Sequence[DeviceTensor], columns: DeviceBuffer, weight: DeviceTensor, options: DeformableOptions
) -> KernelLaunch:
    images, offset, mask, out = part
    count, channels, height, width = images.shape
    total = count * channels * math.prod(weight.shape[2:]) * math.prod(out.shape[2:])
    pairs = (("stride", options.stride), ("padding", options.padding), ("dilation", options.dilation))
    return KernelLaunch(
        module=_MODULE,
        function="sample_taps",
        arguments={
            "images": images.buffer,
            "offset": offset.buffer,
            "mask_values": mask.buffer,
            "columns": columns,
            "total": total,
            "channels": channels,
            "height": height,
            "width": width,
            "out_height": out.shape[2],
            "out_width": out.shape[3],
            "taps_height": weight.shape[2],
            "taps_width": weight.shape[3],
            **{f"{name}_{axis}": pair[number] for name, pair in pairs for number, axis in enumerate("yx")},
            "groups": options.deformable_group,
        },
        constants={"BLOCK": _BLOCK},
        grid=element_grid(total, _BLOCK),
    )


def _plan_product(
    out: DeviceTensor, columns: DeviceBuffer, inputs: Sequence[DeviceTensor], options: DeformableOptions
) -> KernelLaunch:
    weight, bias = inputs[3], inputs[4] if len(inputs) == 5 else None
    outputs, pixels = weight.shape[0] // options.group, math.prod(out.shape[2:])
    return KernelLaunch(
        module=_MODULE,
        function="multiply_columns",
        arguments={
            "weight": weight.buffer,
            "columns": columns,
            "bias": weight.buffer if bias is None else bias.buffer,
            "out": out.buffer,
            "outputs": outputs,
            "depth": math.prod(weight.shape[1:]),
            "pixels": pixels,
            "groups": options.group,
        },
        constants={"HAS_BIAS": bias is not None, "BLOCK_M": 32, "BLOCK_N": 64, "BLOCK_K": 32},
        grid=(out.shape[0] * options.group, ceil_div(pixels, 64), ceil_div(outputs, 32)),
    )
