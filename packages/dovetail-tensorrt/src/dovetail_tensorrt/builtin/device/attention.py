"""Which kernel adds the matrices of DeBERTa: a plan over addresses of a device. Cost: one pass over the result."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.types import DataType
from dovetail_tensorrt.builtin.device.launch import DeviceTensor, KernelLaunch, element_grid
from dovetail_tensorrt.builtin.host.attention import find_bucket_scale

__all__ = ["plan_disentangled"]


def plan_disentangled(
    inputs: Sequence[DeviceTensor], out: DeviceTensor, span: int, factor: float
) -> list[KernelLaunch]:
    """The scaled sum of the three matrices."""
    content, to_position, from_position = inputs
    is_quantized = content.buffer.type is DataType.INT8
    log_middle, log_factor = find_bucket_scale(span, to_position.shape[2])
    scales = {f"scale{number}": float(each.scale) if is_quantized else 1.0 for number, each in enumerate(inputs)}
    launch = KernelLaunch(
        module="attention",
        function="add_disentangled",
        arguments={
            "content": content.buffer,
            "to_position": to_position.buffer,
            "from_position": from_position.buffer,
            "out": out.buffer,
            "total": out.size,
            "length": content.shape[1],
            "width": to_position.shape[2],
            "span": span,
            "log_middle": float(log_middle),
            "log_factor": float(log_factor),
            "factor": float(factor),
            **scales,
            "out_scale": float(out.scale) if is_quantized else 1.0,
        },
        constants={"IS_QUANTIZED": is_quantized, "BLOCK": 1024},
        grid=element_grid(out.size, 1024),
    )
    return [launch]
