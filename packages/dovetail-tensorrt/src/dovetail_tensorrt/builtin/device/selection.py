"""Which kernels select the largest elements, and which suppress boxes: plans over addresses of a device.

Both cut rows of keys down to the largest K and order these: ``_select`` has the launches that they share. Cost: the
search reads what is left of a row 33 times in one program, ordering compares K elements with each other, and the
suppression has one step for each kept box.
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
)
from dovetail_tensorrt.builtin.host.detection import MAX_CANDIDATES, NmsOptions, find_threshold

__all__ = ["plan_suppression", "plan_topk", "size_suppression", "size_topk"]

_MODULE: Final = "selection"
_BLOCK: Final = 4096
_ROWS: Final = 64


def _split(shape: Sequence[int], axis: int) -> tuple[int, int, int]:
    """Rows before an axis, its length, and elements behind it."""
    axis %= len(shape)
    return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])


def size_topk(shape: Sequence[int], count: int, axis: int) -> list[BufferSize]:
    """Keys and places of all elements, keys and places of the chosen ones, their number, and the ordered places."""
    outer, length, inner = _split(shape, axis)
    rows = outer * inner
    return [(rows * length, DataType.INT32)] * 2 + [
        (rows * count, DataType.INT32),
        (rows * count, DataType.INT32),
        (rows, DataType.INT32),
        (rows * count, DataType.INT32),
    ]


def plan_topk(
    values: DeviceTensor,
    found: DeviceTensor,
    indices: DeviceTensor,
    buffers: Sequence[DeviceBuffer],
    count: int,
    axis: int,
    *,
    is_largest: bool,
) -> list[KernelLaunch]:
    """The largest or smallest elements along an axis."""
    outer, length, inner = _split(values.shape, axis)
    keys, places, chosen_keys, chosen_places, totals, ordered = buffers
    write = KernelLaunch(
        module=_MODULE,
        function="write_keys",
        arguments={"values": values.buffer, "keys": keys, "places": places, "length": length, "inner": inner},
        constants={"IS_FLOAT": values.buffer.type is not DataType.INT32, "IS_LARGEST": is_largest, "BLOCK": 1024},
        grid=(outer * inner, ceil_div(length, 1024), 1),
    )
    select = _select(
        (keys, places, totals),
        (chosen_keys, chosen_places, totals, ordered),
        (outer * inner, length, count),
        has_totals=False,
    )
    read = KernelLaunch(
        module=_MODULE,
        function="read_chosen",
        arguments={
            "values": values.buffer,
            "ordered": ordered,
            "found": found.buffer,
            "indices": indices.buffer,
            "length": length,
            "inner": inner,
            "limit": count,
        },
        constants={"BLOCK": 1024},
        grid=(outer * inner, ceil_div(count, 1024), 1),
    )
    return [write, *select, read]


def _select(
    lists: tuple[DeviceBuffer, DeviceBuffer, DeviceBuffer],
    chosen: tuple[DeviceBuffer, DeviceBuffer, DeviceBuffer, DeviceBuffer],
    sizes: tuple[int, int, int],
    *,
    has_totals: bool,
) -> list[KernelLaunch]:
    """Cut lists of keys and places down to the largest, and order these."""
    (keys, places, totals), (chosen_keys, chosen_places, chosen_totals, ordered) = lists, chosen
    rows, length, limit = sizes
    cut = KernelLaunch(
        module=_MODULE,
        function="select_largest",
        arguments={
            "keys": keys,
            "places": places,
            "totals": totals,
            "chosen_keys": chosen_keys,
            "chosen_places": chosen_places,
            "chosen_totals": chosen_totals,
            "length": length,
            "limit": limit,
        },
        constants={"HAS_TOTALS": has_totals, "BLOCK": _BLOCK},
        grid=(rows, 1, 1),
        num_warps=8,
    )
    order = KernelLaunch(
        module=_MODULE,
        function="order_chosen",
        arguments={
            "keys": chosen_keys,
            "places": chosen_places,
            "totals": chosen_totals,
            "ordered": ordered,
            "limit": limit,
        },
        constants={"BLOCK": _ROWS, "SPAN": 64},
        grid=(rows, ceil_div(limit, _ROWS), 1),
    )
    return [cut, order]


def size_suppression(scores: Sequence[int]) -> list[BufferSize]:
    """Counts of blocks and of images; keys and places of candidates; those of the chosen; ordered; corners."""
    images, elements = scores[0], scores[1] * scores[2]
    limit = min(elements, MAX_CANDIDATES)
    return [
        (images * max(ceil_div(elements, _BLOCK), 1), DataType.INT32),
        (images, DataType.INT32),
        (images * elements, DataType.INT32),
        (images * elements, DataType.INT32),
        (images * limit, DataType.INT32),
        (images * limit, DataType.INT32),
        (images, DataType.INT32),
        (images * limit, DataType.INT32),
        (images * limit * 4, DataType.FLOAT),
    ]


def plan_suppression(
    inputs: Sequence[DeviceTensor],
    outputs: Sequence[DeviceTensor],
    buffers: Sequence[DeviceBuffer],
    options: NmsOptions,
) -> list[KernelLaunch]:
    """Non-maximum suppression: filter, cut down and order, decode, suppress."""
    scores = inputs[1]
    images, anchors, classes = scores.shape[:3]
    elements = anchors * classes
    limit = min(elements, MAX_CANDIDATES)
    counts, totals, keys, places, chosen_keys, chosen_places, chosen, ordered, corners = buffers
    select = _select(
        (keys, places, totals),
        (chosen_keys, chosen_places, chosen, ordered),
        (images, elements, limit),
        has_totals=True,
    )
    return [
        *_plan_filter(scores, (counts, totals, keys, places), elements, max(classes, 1), options),
        *select,
        _plan_decoding(inputs, (ordered, chosen, corners), (elements, limit), options),
        KernelLaunch(
            module=_MODULE,
            function="suppress_boxes",
            arguments={
                "corners": corners,
                "ordered": ordered,
                "totals": chosen,
                "scores": scores.buffer,
                "counts": outputs[0].buffer,
                "out_boxes": outputs[1].buffer,
                "out_scores": outputs[2].buffer,
                "out_classes": outputs[3].buffer,
                "elements": elements,
                "classes": max(classes, 1),
                "limit": limit,
                "most": options.max_output_boxes,
                "iou_threshold": float(options.iou_threshold),
            },
            constants={
                "IS_AGNOSTIC": options.is_class_agnostic,
                "HAS_LOGITS": options.has_logits,
                "BLOCK": max(1 << (limit - 1).bit_length() if limit else 1, 16),
            },
            grid=(images, 1, 1),
            num_warps=8,
        ),
    ]


def _plan_filter(
    scores: DeviceTensor,
    buffers: tuple[DeviceBuffer, DeviceBuffer, DeviceBuffer, DeviceBuffer],
    elements: int,
    classes: int,
    options: NmsOptions,
) -> list[KernelLaunch]:
    """Lists of the scores that reach the threshold, with their number."""
    counts, totals, keys, places = buffers
    images, blocks = scores.shape[0], ceil_div(elements, _BLOCK)
    sizes: dict[str, int | float] = {
        "elements": elements,
        "classes": classes,
        "background": options.background_class,
        "threshold": float(find_threshold(options)),
        "blocks": blocks,
    }
    constants = {"BLOCK": _BLOCK}
    return [
        KernelLaunch(
            module=_MODULE,
            function="count_scores",
            arguments={"scores": scores.buffer, "counts": counts, **sizes},
            constants=constants,
            grid=(images, blocks, 1),
            num_warps=8,
        ),
        KernelLaunch(
            module=_MODULE,
            function="add_counts",
            arguments={"counts": counts, "totals": totals, "blocks": blocks},
            constants={"BLOCK": 1024},
            grid=(images, 1, 1),
        ),
        KernelLaunch(
            module=_MODULE,
            function="compact_scores",
            arguments={"scores": scores.buffer, "counts": counts, "keys": keys, "places": places, **sizes},
            constants=constants,
            grid=(images, blocks, 1),
            num_warps=8,
        ),
    ]


def _plan_decoding(
    inputs: Sequence[DeviceTensor],
    buffers: tuple[DeviceBuffer, DeviceBuffer, DeviceBuffer],
    sizes: tuple[int, int],
    options: NmsOptions,
) -> KernelLaunch:
    (ordered, totals, corners), (elements, limit) = buffers, sizes
    boxes, scores = inputs[:2]
    anchors = inputs[2] if len(inputs) == 3 else None
    return KernelLaunch(
        module=_MODULE,
        function="decode_boxes",
        arguments={
            "boxes": boxes.buffer,
            "anchors": boxes.buffer if anchors is None else anchors.buffer,
            "ordered": ordered,
            "totals": totals,
            "corners": corners,
            "elements": elements,
            "classes": max(scores.shape[2], 1),
            "num_boxes": boxes.shape[1],
            "per_box": boxes.shape[2] if len(boxes.shape) == 4 else 1,
            "anchor_stride": boxes.shape[1] * 4 if anchors is not None and anchors.shape[0] > 1 else 0,
            "limit": limit,
        },
        constants={"HAS_ANCHORS": anchors is not None, "HAS_CENTERS": options.has_centers, "BLOCK": 256},
        grid=(scores.shape[0], ceil_div(limit, 256), 1),
    )
