"""Layers of images and boxes: resize, grid sample and non-maximum suppression."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from dovetail.network.api.enums import (
    BoundingBoxFormat,
    InterpolationMode,
    ResizeCoordinateTransformation,
    ResizeRoundMode,
    ResizeSelector,
    SampleMode,
)
from dovetail.types import DataType
from tests.support.layer_cases import Expected, Sketch, case, rand

ALIGN = ResizeCoordinateTransformation.ALIGN_CORNERS
ASYMMETRIC = ResizeCoordinateTransformation.ASYMMETRIC
HALF = ResizeCoordinateTransformation.HALF_PIXEL
ROUND: dict[ResizeRoundMode, Any] = {
    ResizeRoundMode.HALF_UP: lambda v: math.floor(v + 0.5),
    ResizeRoundMode.HALF_DOWN: lambda v: math.ceil(v - 0.5),
    ResizeRoundMode.FLOOR: math.floor,
    ResizeRoundMode.CEIL: math.ceil,
}


def coordinate(index: int, old: int, new: int, scale: float, how: Any, upper: bool) -> float:
    if how == ALIGN:
        return index * (old - 1) / (new - 1) if new > 1 else 0.0
    if how == ASYMMETRIC or (upper and new == 1):
        return index / scale
    return (index + 0.5) / scale - 0.5


def weights(at: float, old: int, mode: InterpolationMode, rounding: Any, coefficient: float, exclude: bool) -> Any:
    """The weight of each input element for one output element."""
    result = np.zeros(old)
    if mode == InterpolationMode.NEAREST:
        result[min(max(ROUND[rounding](at), 0), old - 1)] = 1
        return result
    base = math.floor(at)
    share = at - base
    taps = {0: 1 - share, 1: share}
    if mode == InterpolationMode.CUBIC:
        a = coefficient
        near = lambda t: ((a + 2) * t - (a + 3)) * t * t + 1  # noqa: E731
        far = lambda t: ((a * t - 5 * a) * t + 8 * a) * t - 4 * a  # noqa: E731
        taps = {-1: far(1 + share), 0: near(share), 1: near(1 - share), 2: far(2 - share)}
    for offset, weight in taps.items():
        if exclude and not 0 <= base + offset < old:
            continue
        result[min(max(base + offset, 0), old - 1)] += weight
    return result / result.sum() if exclude else result


def resize_axes(x: np.ndarray, sizes: Any, scales: Any, how: Any, mode: Any, rounding: Any = ResizeRoundMode.FLOOR,
                upper: bool = False, coefficient: float = -0.75, exclude: bool = False) -> np.ndarray:  # fmt: skip
    y = x.astype(np.float64)
    for axis, (old, new, scale) in enumerate(zip(x.shape, sizes, scales, strict=True)):
        if old == new:
            continue
        spots = [coordinate(index, old, new, scale, how, upper) for index in range(new)]
        table = np.stack([weights(spot, old, mode, rounding, coefficient, exclude) for spot in spots])
        y = np.moveaxis(np.tensordot(table, y, (1, axis)), 0, axis)
    return y.astype(np.float32)


NEAREST, LINEAR, CUBIC = InterpolationMode.NEAREST, InterpolationMode.LINEAR, InterpolationMode.CUBIC


@case("add_resize", "as it is", sizes=(1, 2, 7, 3))
@case("add_resize", "linear, half pixel", sizes=(1, 2, 7, 3), mode=LINEAR, how=HALF)
@case("add_resize", "linear, aligned", sizes=(1, 2, 7, 9), mode=LINEAR, how=ALIGN)
@case("add_resize", "cubic", sizes=(1, 2, 9, 7), mode=CUBIC, how=HALF, coefficient=-0.5)
@case("add_resize", "cubic without the outside", sizes=(1, 2, 9, 7), mode=CUBIC, how=HALF, exclude=True)
@case("add_resize", "one pixel by formula", sizes=(1, 2, 1, 5), how=HALF, mode=LINEAR)
@case("add_resize", "one pixel, the first", sizes=(1, 2, 1, 5), how=HALF, mode=LINEAR, upper=True)
@case("add_resize", "half up", sizes=(1, 2, 7, 9), how=HALF, rounding=ResizeRoundMode.HALF_UP)
@case("add_resize", "half down", sizes=(1, 2, 7, 9), how=HALF, rounding=ResizeRoundMode.HALF_DOWN)
@case("add_resize", "ceil", sizes=(1, 2, 7, 9), how=ASYMMETRIC, rounding=ResizeRoundMode.CEIL)
@case("add_resize", "scales", scales=(1, 1, 1.5, 2.25), mode=LINEAR, how=HALF)
@case("add_resize", "shape from a tensor", sizes=(1, 2, 7, 3), mode=LINEAR, dynamic=True)
def resize(
    sketch: Sketch,
    sizes: Any = None,
    scales: Any = None,
    mode: InterpolationMode = NEAREST,
    how: Any = ASYMMETRIC,
    rounding: ResizeRoundMode = ResizeRoundMode.FLOOR,
    upper: bool = False,
    coefficient: float = -0.75,
    exclude: bool = False,
    dynamic: bool = False,
) -> Expected:
    x = rand(1, 2, 5, 6)
    layer = sketch.network.add_resize(sketch.input(x))
    layer.resize_mode, layer.coordinate_transformation, layer.nearest_rounding = mode, how, rounding
    layer.selector_for_single_pixel = ResizeSelector.UPPER if upper else ResizeSelector.FORMULA
    layer.cubic_coeff, layer.exclude_outside = coefficient, exclude
    if dynamic:
        layer.set_input(1, sketch.numbers(*sizes, dtype=np.int32))
    elif scales is not None:
        layer.shape = (1, 2, 3, 4)
        layer.scales = scales
        sizes = [math.floor(size * scale) for size, scale in zip(x.shape, scales, strict=True)]
    else:
        layer.scales = (1, 1, 1, 1)
        layer.shape = sizes
    factors = scales or [new / old for old, new in zip(x.shape, sizes, strict=True)]
    wanted = resize_axes(x, sizes, factors, how, mode, rounding, upper, coefficient, exclude)
    return [(layer.get_output(0), wanted)]


@case("add_resize", "a region")
def resize_region(sketch: Sketch) -> Expected:
    x = rand(1, 1, 5, 5)
    region = np.array([0, 0, 0.25, 0, 1, 1, 0.75, 1], np.float32)
    layer = sketch.network.add_resize(sketch.input(x))
    layer.shape, layer.resize_mode = (1, 1, 3, 5), InterpolationMode.LINEAR
    layer.set_input(2, sketch.input(region, fixed=True))
    return [(layer.get_output(0), x[:, :, 1:4])]


def grid_sample(x: np.ndarray, grid: np.ndarray, mode: Any, outside: SampleMode, align: bool) -> np.ndarray:
    batch, channels, height, width = x.shape
    result = np.zeros((batch, channels, *grid.shape[1:3]))
    for n, i, j in np.ndindex(grid.shape[:3]):
        spots = []
        for place, size in zip(grid[n, i, j], (width, height), strict=True):
            spots.append((place + 1) / 2 * (size - 1) if align else ((place + 1) * size - 1) / 2)
        result[n, :, i, j] = _sample_at(x[n], spots[1], spots[0], mode, outside, align)
    return result.astype(np.float32)


def _fold(at: float, size: int, align: bool) -> float:
    low, high = (0.0, size - 1.0) if align else (-0.5, size - 0.5)
    span = high - low
    turns, rest = divmod(at - low, span)
    return low + (rest if turns % 2 == 0 else span - rest)


def _sample_at(image: np.ndarray, row: float, column: float, mode: Any, outside: SampleMode, align: bool) -> Any:
    height, width = image.shape[1:]
    if outside == SampleMode.REFLECT:
        row, column = _fold(row, height, align), _fold(column, width, align)
    if outside != SampleMode.FILL and mode != CUBIC:
        row, column = min(max(row, 0), height - 1), min(max(column, 0), width - 1)
    tables = [_taps(row, mode), _taps(column, mode)]
    total = np.zeros(image.shape[0])
    for (r, a), (c, b) in itertools.product(*(table.items() for table in tables)):
        if outside != SampleMode.FILL:
            r, c = min(max(r, 0), height - 1), min(max(c, 0), width - 1)
        if 0 <= r < height and 0 <= c < width:
            total += a * b * image[:, r, c]
    return total


def _taps(at: float, mode: Any) -> dict[int, float]:
    if mode == NEAREST:
        return {int(np.rint(at)): 1.0}
    base = math.floor(at)
    return {base: base + 1 - at, base + 1: at - base}


@case("add_grid_sample", "as it is")
@case("add_grid_sample", "nearest, clamped", mode=NEAREST, outside=SampleMode.CLAMP)
@case("add_grid_sample", "linear, reflected, aligned", outside=SampleMode.REFLECT, align=True)
@case("add_grid_sample", "linear, clamped", outside=SampleMode.CLAMP)
def sample_grid(
    sketch: Sketch, mode: Any = LINEAR, outside: SampleMode = SampleMode.FILL, align: bool = False
) -> Expected:
    x, grid = rand(2, 3, 4, 5), rand(2, 3, 3, 2, low=-1.3, high=1.3)
    layer = sketch.network.add_grid_sample(sketch.input(x), sketch.input(grid))
    layer.interpolation_mode, layer.sample_mode, layer.align_corners = mode, outside, align
    return [(layer.get_output(0), grid_sample(x, grid, mode, outside, align))]


@case("add_grid_sample", "cubic at the elements themselves")
def sample_cubic(sketch: Sketch) -> Expected:
    x = rand(1, 2, 4, 4)
    rows, columns = np.meshgrid(np.linspace(-1, 1, 4), np.linspace(-1, 1, 4), indexing="ij")
    grid = np.stack([columns, rows], -1)[None].astype(np.float32)
    layer = sketch.network.add_grid_sample(sketch.input(x), sketch.input(grid))
    layer.interpolation_mode, layer.align_corners = InterpolationMode.CUBIC, True
    return [(layer.get_output(0), x)]


def overlap(a: np.ndarray, b: np.ndarray) -> float:
    low, high = np.maximum(a[:2], b[:2]), np.minimum(a[2:], b[2:])
    shared = np.prod(np.maximum(high - low, 0))
    return float(shared / (np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]) - shared))


def suppress(boxes: np.ndarray, scores: np.ndarray, limit: int, iou: float, least: float, best: int) -> list[Any]:
    """Boxes are (batch, boxes, classes, 4) corners."""
    found = []
    for batch in range(scores.shape[0]):
        kept = np.sort(scores[batch].reshape(-1))[::-1][: best or None][-1]
        for kind in range(scores.shape[2]):
            chosen: list[int] = []
            for box in np.argsort(-scores[batch, :, kind], kind="stable"):
                score = scores[batch, box, kind]
                if score <= least or score < kept or len(chosen) == limit:
                    continue
                if all(overlap(boxes[batch, box, kind], boxes[batch, other, kind]) <= iou for other in chosen):
                    chosen.append(int(box))
            found += [(batch, kind, box) for box in chosen]
    return found


@case("add_nms", "as it is")
@case("add_nms", "thresholds", iou=0.4, least=0.3)
@case("add_nms", "centres and sizes", form=BoundingBoxFormat.CENTER_SIZES, iou=0.5)
@case("add_nms", "boxes of each class", per_class=True, iou=0.3, least=0.2)
@case("add_nms", "only the best", best=4, iou=0.9)
@case("add_nms", "long indices", indices=DataType.INT64, iou=0.5)
def nms(
    sketch: Sketch,
    iou: float = 0.0,
    least: float = 0.0,
    form: BoundingBoxFormat = BoundingBoxFormat.CORNER_PAIRS,
    per_class: bool = False,
    best: int = 0,
    indices: DataType = DataType.INT32,
) -> Expected:
    draw = np.random.default_rng(3)
    low = draw.uniform(0, 4, (2, 6, 3 if per_class else 1, 2))
    corners = np.concatenate([low, low + draw.uniform(1, 3, low.shape)], -1).astype(np.float32)
    scores = draw.uniform(0.01, 1, (2, 6, 3)).astype(np.float32)
    given = corners
    if form == BoundingBoxFormat.CENTER_SIZES:
        given = np.concatenate([(corners[..., :2] + corners[..., 2:]) / 2, corners[..., 2:] - corners[..., :2]], -1)
    limit = sketch.scalar(2, np.int32)
    boxes = sketch.input(given if per_class else given[:, :, 0])
    layer = sketch.network.add_nms(boxes, sketch.input(scores), limit)
    layer.bounding_box_format, layer.topk_box_limit, layer.indices_type = form, best, indices
    if iou:
        layer.set_input(3, sketch.input(np.float32(iou)))
    if least:
        layer.set_input(4, sketch.input(np.float32(least)))
    wanted = suppress(np.broadcast_to(corners, (2, 6, 3, 4)), scores, 2, iou, least, best)
    count = np.array(len(wanted), indices.numpy)
    return [(layer.get_output(0), np.array(wanted, indices.numpy)), (layer.get_output(1), count)]
