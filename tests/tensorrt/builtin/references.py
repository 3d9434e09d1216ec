"""Plain references: what each built-in plugin computes, element by element, written apart from the package."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def _corner_boxes(box: Array, anchor: Array | None, coding: int) -> list[float]:
    a, b, c, d = (float(v) for v in box)
    if coding == 1:
        if anchor is not None:
            p, q, r, s = (float(v) for v in anchor)
            a, b, c, d = a * r + p, b * s + q, math.exp(c) * r, math.exp(d) * s
        return [a - c / 2, b - d / 2, a + c / 2, b + d / 2]
    if anchor is not None:
        p, q, r, s = (float(v) for v in anchor)
        a, c, p, r = min(a, c), max(a, c), min(p, r), max(p, r)
        b, d, q, s = min(b, d), max(b, d), min(q, s), max(q, s)
        return [a + p, b + q, c + r, d + s]
    return [a, b, c, d]


def _iou(one: Sequence[float], other: Sequence[float]) -> float:
    first = [min(one[0], one[2]), min(one[1], one[3]), max(one[0], one[2]), max(one[1], one[3])]
    second = [min(other[0], other[2]), min(other[1], other[3]), max(other[0], other[2]), max(other[1], other[3])]
    high = min(first[2], second[2]) - max(first[0], second[0])
    wide = min(first[3], second[3]) - max(first[1], second[1])
    if high <= 0 or wide <= 0:
        return 0.0
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (first, second)]
    union = sum(areas) - high * wide
    return high * wide / union if union > 0 else 0.0


def efficient_nms(inputs: Sequence[Array], fields: Mapping[str, Any]) -> list[Array]:
    boxes, scores = inputs[0], inputs[1]
    anchors = inputs[2] if len(inputs) == 3 else None
    most = fields["max_output_boxes"]
    count = np.zeros((len(boxes), 1), np.int32)
    out_boxes, out_scores = np.zeros((len(boxes), most, 4)), np.zeros((len(boxes), most))
    out_classes = np.zeros((len(boxes), most), np.int32)
    for image in range(len(boxes)):
        candidates = []
        for a in range(scores.shape[1]):
            for c in range(scores.shape[2]):
                raw = float(scores[image, a, c])
                share = 1 / (1 + math.exp(-raw)) if fields["score_activation"] else raw
                if share >= fields["score_threshold"] and c != fields["background_class"]:
                    box = boxes[image, a] if boxes.ndim == 3 else boxes[image, a, c if boxes.shape[2] > 1 else 0]
                    anchor = None if anchors is None else anchors[image % len(anchors), a]
                    candidates.append((raw, share, c, _corner_boxes(box, anchor, fields["box_coding"])))
        candidates.sort(key=lambda item: -item[0])
        kept: list[tuple[float, float, int, list[float]]] = []
        for item in candidates[:4096]:
            rivals = [k for k in kept if fields.get("class_agnostic") or k[2] == item[2]]
            if len(kept) < most and all(_iou(k[3], item[3]) < fields["iou_threshold"] for k in rivals):
                kept.append(item)
        count[image] = len(kept)
        for place, (_, share, label, box) in enumerate(kept):
            out_boxes[image, place], out_scores[image, place], out_classes[image, place] = box, share, label
    return [count, out_boxes, out_scores, out_classes]


def _bilinear(plane: Array, y: float, x: float) -> list[float]:
    """The four weighted corners of a point inside of a plane."""
    top, left = min(int(y), plane.shape[0] - 1), min(int(x), plane.shape[1] - 1)
    low, right = min(top + 1, plane.shape[0] - 1), min(left + 1, plane.shape[1] - 1)
    dy, dx = (y - top if low > top else 0.0), (x - left if right > left else 0.0)
    return [
        (1 - dy) * (1 - dx) * plane[top, left],
        (1 - dy) * dx * plane[top, right],
        dy * (1 - dx) * plane[low, left],
        dy * dx * plane[low, right],
    ]


def roi_align(inputs: Sequence[Array], fields: Mapping[str, Any]) -> list[Array]:
    images, rois, batch = inputs
    high, wide, ratio = (
        fields.get(name, default)
        for name, default in (("output_height", 1), ("output_width", 1), ("sampling_ratio", 0))
    )
    scale, mode = fields.get("spatial_scale", 1.0), fields.get("mode", 1)
    aligned = fields.get("coordinate_transformation_mode", 1)
    out = np.zeros((len(rois), images.shape[1], high, wide))
    height, width = images.shape[2:]
    for r, roi in enumerate(rois):
        x1, y1, x2, y2 = (np.float32(v) * np.float32(scale) - np.float32(0.5 if aligned else 0) for v in roi)
        tall, broad = y2 - y1, x2 - x1
        if not aligned:
            tall, broad = max(tall, np.float32(1)), max(broad, np.float32(1))
        bin_h, bin_w = tall / np.float32(high), broad / np.float32(wide)
        grid_h, grid_w = ratio or math.ceil(bin_h), ratio or math.ceil(bin_w)
        for c in range(images.shape[1]):
            plane = images[int(batch[r]), c].astype(np.float64)
            for i in range(high):
                for j in range(wide):
                    found = []
                    for a in range(grid_h):
                        for b in range(grid_w):
                            y = float(y1) + (i + (a + 0.5) / grid_h) * float(bin_h)
                            x = float(x1) + (j + (b + 0.5) / grid_w) * float(bin_w)
                            if y < -1 or y > height or x < -1 or x > width:
                                found.append(0.0)
                                continue
                            corners = _bilinear(plane, max(y, 0.0), max(x, 0.0))
                            found.append(sum(corners) if mode else max(corners))
                    if found:
                        out[r, c, i, j] = sum(found) / len(found) if mode else max(found)
    return [out]


def crop_and_resize(inputs: Sequence[Array], fields: Mapping[str, Any]) -> list[Array]:
    images, boxes = inputs
    high, wide = fields["crop_height"], fields["crop_width"]
    n, c, height, width = images.shape
    out = np.zeros((n, boxes.shape[1], c, high, wide))
    for image in range(n):
        for b in range(boxes.shape[1]):
            y1, x1, y2, x2 = (float(v) for v in boxes[image, b].reshape(-1))
            for i in range(high):
                for j in range(wide):
                    y = (
                        y1 * (height - 1) + i * (y2 - y1) * (height - 1) / (high - 1)
                        if high > 1
                        else (y1 + y2) / 2 * (height - 1)
                    )
                    x = (
                        x1 * (width - 1) + j * (x2 - x1) * (width - 1) / (wide - 1)
                        if wide > 1
                        else (x1 + x2) / 2 * (width - 1)
                    )
                    if 0 <= y <= height - 1 and 0 <= x <= width - 1:
                        for k in range(c):
                            out[image, b, k, i, j] = sum(_bilinear(images[image, k].astype(np.float64), y, x))
    return [out]


def pyramid_roi_align(inputs: Sequence[Array], fields: Mapping[str, Any]) -> list[Array]:
    rois, maps = inputs[0], inputs[1:]
    pooled = fields.get("pooled_size", 7)
    image_h, image_w = fields.get("image_size", (1024, 1024))
    transform, absolute = fields.get("roi_coords_transform", 2), fields.get("roi_coords_absolute", 1)
    swap, plus = (fields.get(f"roi_coords_{n}", 0) for n in ("swap", "plusone"))
    ratio = fields.get("sampling_ratio", 0)
    threshold = Fraction(fields.get("fpn_scale", 224) ** 2, image_h * image_w) / 4
    if fields.get("legacy"):
        transform, plus, swap, absolute, ratio = -1, 0, 1, 0, 1
        threshold = Fraction(224 * 224 * 2, 1024 * 1024) / 16
    n, count, _ = rois.shape
    channels = maps[0].shape[1]
    out = np.zeros((n, count, channels, pooled, pooled))
    for image in range(n):
        for r in range(count):
            a, b, c, d = (float(v) for v in rois[image, r])
            y1, x1, y2, x2 = (a, b, c, d) if swap else (b, a, d, c)
            y1, y2, x1, x2 = min(y1, y2), max(y1, y2), min(x1, x2), max(x1, x2)
            tall, broad = (image_h, image_w) if absolute else (1, 1)
            y1, y2 = (Fraction(max(0.0, min(float(tall), v))) / tall for v in (y1, y2))
            x1, x2 = (Fraction(max(0.0, min(float(broad), v))) / broad for v in (x1, x2))
            area = (y2 - y1 + Fraction(plus, image_h)) * (x2 - x1 + Fraction(plus, image_w))
            y1, y2, x1, x2 = (float(v) for v in (y1, y2, x1, x2))
            level = sum(area > threshold * 4**k for k in range(3))
            features = maps[level]
            height, width = features.shape[2:]
            if transform == -1:
                top, left, bottom, right = y1 * (height - 1), x1 * (width - 1), y2 * (height - 1), x2 * (width - 1)
                step_y, step_x = (bottom - top) / max(pooled - 1, 1), (right - left) / max(pooled - 1, 1)
                offset = 0.0
            else:
                shift = 0.5 if transform == 2 else 0.0
                top, left, bottom, right = (
                    y1 * height - shift,
                    x1 * width - shift,
                    y2 * height - shift,
                    x2 * width - shift,
                )
                step_y, step_x = (bottom - top) / pooled, (right - left) / pooled
                offset = 0.5 if transform else 0.0
            grid_y = ratio or max(1, math.ceil(np.float32((bottom - top) / pooled)))
            grid_x = ratio or max(1, math.ceil(np.float32((right - left) / pooled)))
            for k in range(channels):
                plane = features[image, k].astype(np.float64)
                for i in range(pooled):
                    for j in range(pooled):
                        total = 0.0
                        for p in range(grid_y):
                            for q in range(grid_x):
                                y = min(max(top + step_y * i + step_y * (p + offset) / grid_y, 0.0), height - 1.0)
                                x = min(max(left + step_x * j + step_x * (q + offset) / grid_x, 0.0), width - 1.0)
                                total += sum(_bilinear(plane, y, x))
                        out[image, r, k, i, j] = total / (grid_y * grid_x)
    return [out]


def _zero_padded(plane: Array, y: float, x: float) -> float:
    """A point of a plane that is zero all around."""
    total = 0.0
    for row in (math.floor(y), math.floor(y) + 1):
        for column in (math.floor(x), math.floor(x) + 1):
            if 0 <= row < plane.shape[0] and 0 <= column < plane.shape[1]:
                total += (1 - abs(y - row)) * (1 - abs(x - column)) * float(plane[row, column])
    return total


def deformable_attention(inputs: Sequence[Array], fields: Mapping[str, Any]) -> list[Array]:
    value, shapes, starts, places, weights = inputs
    n, _, heads, depth = value.shape
    out = np.zeros((n, places.shape[1], heads, depth))
    for b, q, m, level, p in np.ndindex(*weights.shape):
        height, width = (int(v) for v in shapes[level])
        x, y = (float(v) for v in places[b, q, m, level, p])
        start = int(starts[level])
        for d in range(depth):
            plane = value[b, start : start + height * width, m, d].reshape(height, width)
            sample = _zero_padded(plane, y * height - 0.5, x * width - 0.5)
            out[b, q, m, d] += float(weights[b, q, m, level, p]) * sample
    return [out]


def deformable_convolution(inputs: Sequence[Array], fields: Mapping[str, Any]) -> list[Array]:
    images, offset, mask, weight = inputs[:4]
    stride, padding = fields.get("stride", (1, 1)), fields.get("padding", (0, 0))
    dilation, group = fields.get("dilation", (1, 1)), fields.get("group", 1)
    shared = images.shape[1] // fields.get("deformable_group", 1)
    outputs, per_group, taps_h, taps_w = weight.shape
    out = np.zeros((images.shape[0], outputs, *offset.shape[2:]))
    for b, o, i, j in np.ndindex(*out.shape):
        for k in range(per_group):
            channel = o // (outputs // group) * per_group + k
            part = channel // shared
            for u in range(taps_h):
                for v in range(taps_w):
                    tap = part * taps_h * taps_w + u * taps_w + v
                    y = i * stride[0] - padding[0] + u * dilation[0] + float(offset[b, 2 * tap, i, j])
                    x = j * stride[1] - padding[1] + v * dilation[1] + float(offset[b, 2 * tap + 1, i, j])
                    sample = _zero_padded(images[b, channel], y, x)
                    out[b, o, i, j] += sample * float(mask[b, tap, i, j]) * float(weight[o, k, u, v])
        if len(inputs) == 5:
            out[b, o, i, j] += float(inputs[4][o])
    return [out]


def scatter_elements(inputs: Sequence[Array], fields: Mapping[str, Any]) -> list[Array]:
    data, indices, updates = inputs
    reduce = {"add": lambda a, b: a + b, "mul": lambda a, b: a * b, "max": max, "min": min}[fields["reduction"]]
    out = data.astype(np.float64 if data.dtype.kind == "f" or data.dtype.itemsize == 2 else data.dtype)
    for place in np.ndindex(*indices.shape):
        target = list(place)
        target[fields.get("axis", 0)] = int(indices[place])
        out[tuple(target)] = reduce(out[tuple(target)], out.dtype.type(updates[place]))
    return [out]


def topk(inputs: Sequence[Array], fields: Mapping[str, Any]) -> list[Array]:
    rows = np.moveaxis(inputs[0], fields.get("axis", -1), -1)
    sign = -1 if fields["is_largest"] else 1
    values, places = (
        np.zeros((*rows.shape[:-1], fields["k"]), rows.dtype),
        np.zeros((*rows.shape[:-1], fields["k"]), np.int32),
    )
    for row in np.ndindex(*rows.shape[:-1]):
        order = sorted(range(rows.shape[-1]), key=lambda k: sign * float(rows[row][k]))[: fields["k"]]
        values[row], places[row] = rows[row][order], order
    return [np.moveaxis(array, -1, fields.get("axis", -1)) for array in (values, places)]


def group_normalization(inputs: Sequence[Array], fields: Mapping[str, Any]) -> list[Array]:
    values, scale, bias = (array.astype(np.float64) for array in inputs)
    out, each = np.zeros(values.shape), values.shape[1] // fields["num_groups"]
    for b in range(len(values)):
        for c in range(values.shape[1]):
            part = values[b, c // each * each : c // each * each + each]
            spread = math.sqrt(((part - part.mean()) ** 2).mean() + fields.get("eps", 1e-5))
            out[b, c] = (values[b, c] - part.mean()) / spread * scale[c] + bias[c]
    return [out]


def instance_normalization(inputs: Sequence[Array], fields: Mapping[str, Any]) -> list[Array]:
    values = inputs[0].astype(np.float64)
    out = np.zeros(values.shape)
    for b in range(len(values)):
        for c in range(values.shape[1]):
            part = values[b, c]
            spread = math.sqrt(((part - part.mean()) ** 2).mean() + fields.get("epsilon", 1e-5))
            out[b, c] = (part - part.mean()) / spread * fields["scales"][c] + fields["bias"][c]
            if fields.get("relu"):
                out[b, c] = np.where(out[b, c] < 0, out[b, c] * fields.get("alpha", 0.0), out[b, c])
    return [out]


def pillar_scatter(inputs: Sequence[Array], fields: Mapping[str, Any]) -> list[Array]:
    features, places, counts = inputs
    height, width = fields["dense_shape"]
    out = np.zeros((len(features), features.shape[2], height, width), features.dtype)
    for frame in range(len(features)):
        for pillar in range(min(int(counts[frame]), features.shape[1])):
            _, _, y, x = (int(v) for v in places[frame, pillar])
            if 0 <= y < height and 0 <= x < width:
                out[frame, :, y, x] = features[frame, pillar]
    return [out]


def disentangled_attention(inputs: Sequence[Array], fields: Mapping[str, Any]) -> list[Array]:
    content, to_position, from_position = (array.astype(np.float64) for array in inputs)
    span, middle = fields["span"], fields["span"] // 2
    out = np.zeros(content.shape)
    for b, j, k in np.ndindex(*content.shape):
        distance = j - k
        if abs(distance) > middle:
            reach = math.log(abs(distance) / middle) / math.log((2 * span - 1) / middle) * (middle - 1)
            nearest = round(reach)
            steps = nearest if abs(reach - nearest) < 1e-5 else math.ceil(reach)
            distance = int(math.copysign(steps + middle, distance))
        column = min(max(distance + span, 0), 2 * span - 1)
        out[b, j, k] = (content[b, j, k] + to_position[b, j, column] + from_position[b, k, column]) * fields["factor"]
    return [out]


REFERENCES = {
    "EfficientNMS_TRT": efficient_nms,
    "ROIAlign_TRT": roi_align,
    "MultiscaleDeformableAttnPlugin_TRT": deformable_attention,
    "ModulatedDeformConv2d": deformable_convolution,
    "ScatterElements": scatter_elements,
    "TopkLastDim": topk,
    "InstanceNormalization_TRT": instance_normalization,
    "GroupNormalizationPlugin": group_normalization,
    "PillarScatterPlugin": pillar_scatter,
    "CropAndResizeDynamic": crop_and_resize,
    "PyramidROIAlign_TRT": pyramid_roi_align,
    "DisentangledAttention_TRT": disentangled_attention,
}
