"""Which kernels move elements by their index: plans over addresses of a device.

Cost: scatter has one pass over the data and one over the updates, which are reduced atomically, in FP32 for half
precision; sums of floating-point numbers depend on the order, which is not fixed. ``mul`` has no atomic form and goes
through the updates of a line in their order. Pillars have a pass over the map and one over the pillars.
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
    element_grid,
)

__all__ = ["plan_pillars", "plan_scatter", "size_pillars", "size_scatter"]

_MODULE: Final = "indexing"
_BLOCK: Final = 1024
_LINES: Final = 128
"""One line a thread, so that a thread reads what it wrote itself."""
_RANK: Final = 8
_WIDE: Final = (DataType.FLOAT, DataType.INT32, DataType.INT64)


def size_scatter(data: Sequence[int], dtype: DataType) -> list[BufferSize]:
    """A copy in FP32 of what has half precision."""
    return [] if dtype in _WIDE else [(math.prod(data), DataType.FLOAT)]


def plan_scatter(
    inputs: Sequence[DeviceTensor], out: DeviceTensor, buffers: Sequence[DeviceBuffer], axis: int, reduction: str
) -> list[KernelLaunch]:
    """Copy the data, reduce the updates into the copy, and bring it to the output if it is not there."""
    data, indices, updates = inputs
    target = buffers[0] if buffers else out.buffer
    launches = [_plan_copy(data.buffer, target, data.size)]
    if indices.size:
        launches.append(_plan_updates(data, indices, updates, target, axis % len(data.shape), reduction))
    return [*launches, _plan_copy(target, out.buffer, data.size)] if buffers else launches


def _plan_copy(source: DeviceBuffer, target: DeviceBuffer, total: int) -> KernelLaunch:
    return KernelLaunch(
        module=_MODULE,
        function="copy_elements",
        arguments={"source": source, "target": target, "total": total},
        constants={"BLOCK": _BLOCK},
        grid=element_grid(total, _BLOCK),
    )


def _plan_updates(
    data: DeviceTensor, indices: DeviceTensor, updates: DeviceTensor, target: DeviceBuffer, axis: int, reduction: str
) -> KernelLaunch:
    rank = len(data.shape)
    missing = _RANK - rank
    sizes = (1,) * missing + indices.shape
    strides = (0,) * missing + tuple(math.prod(data.shape[number + 1 :]) for number in range(rank))
    places = {f"d{number}": size for number, size in enumerate(sizes)}
    places |= {f"s{number}": stride for number, stride in enumerate(strides)}
    buffers = {"indices": indices.buffer, "updates": updates.buffer, "target": target}
    if reduction != "mul":
        return KernelLaunch(
            module=_MODULE,
            function="scatter_atomically",
            arguments={**buffers, "total": indices.size, "axis_size": data.shape[axis], **places},
            constants={"AXIS": axis + missing, "REDUCTION": reduction, "BLOCK": _BLOCK},
            grid=element_grid(indices.size, _BLOCK),
        )
    lines = indices.size // indices.shape[axis]
    line = {
        "total": lines,
        "axis_size": data.shape[axis],
        "axis_updates": indices.shape[axis],
        "axis_stride": math.prod(indices.shape[axis + 1 :]),
    }
    return KernelLaunch(
        module=_MODULE,
        function="multiply_in_order",
        arguments={**buffers, **line, **places},
        constants={"AXIS": axis + missing, "BLOCK": _LINES},
        grid=element_grid(lines, _LINES),
    )


def size_pillars(frames: int, height: int, width: int) -> list[BufferSize]:
    """The pillar that has each place."""
    return [(frames * height * width, DataType.INT32)]


def plan_pillars(inputs: Sequence[DeviceTensor], out: DeviceTensor, owners: DeviceBuffer) -> list[KernelLaunch]:
    """Find the last pillar of each place, and read its features."""
    features, places, counts = inputs
    frames, pillars, channels = features.shape
    height, width = out.shape[2:]
    total = frames * pillars
    clear = KernelLaunch(
        module=_MODULE,
        function="fill_elements",
        arguments={"target": owners, "total": frames * height * width, "value": -1},
        constants={"BLOCK": _BLOCK},
        grid=element_grid(frames * height * width, _BLOCK),
    )
    claim = KernelLaunch(
        module=_MODULE,
        function="claim_places",
        arguments={
            "places": places.buffer,
            "counts": counts.buffer,
            "owners": owners,
            "num_pillars": pillars,
            "total": total,
            "height": height,
            "width": width,
        },
        constants={"BLOCK": 256},
        grid=element_grid(total, 256),
    )
    read = KernelLaunch(
        module=_MODULE,
        function="read_pillars",
        arguments={
            "features": features.buffer,
            "owners": owners,
            "out": out.buffer,
            "num_pillars": pillars,
            "channels": channels,
            "size": height * width,
            "total": out.size,
        },
        constants={"BLOCK": _BLOCK},
        grid=element_grid(out.size, _BLOCK),
    )
    return [clear, claim, read]
