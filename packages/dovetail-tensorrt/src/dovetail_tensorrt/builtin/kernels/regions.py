"""Regions of feature maps, resampled to one size: ROI align, ROI align over a pyramid, crop and resize."""
# mypy: ignore-errors

import triton
import triton.language as tl

__all__ = ["align_pyramid", "align_regions", "crop_boxes"]

MAX_GRID = tl.constexpr(4096)


@triton.jit
def load_corners(plane, y, x, height, width, mask):
    """The four weighted corners around points inside of a plane."""
    y = tl.minimum(tl.maximum(y, 0.0), (height - 1).to(tl.float32))
    x = tl.minimum(tl.maximum(x, 0.0), (width - 1).to(tl.float32))
    top, left = y.to(tl.int32), x.to(tl.int32)
    low, right = tl.minimum(top + 1, height - 1), tl.minimum(left + 1, width - 1)
    down, along = y - top.to(tl.float32), x - left.to(tl.float32)
    one = tl.load(plane + top * width + left, mask=mask, other=0).to(tl.float32) * ((1 - down) * (1 - along))
    two = tl.load(plane + top * width + right, mask=mask, other=0).to(tl.float32) * ((1 - down) * along)
    three = tl.load(plane + low * width + left, mask=mask, other=0).to(tl.float32) * (down * (1 - along))
    four = tl.load(plane + low * width + right, mask=mask, other=0).to(tl.float32) * (down * along)
    return one, two, three, four


@triton.jit
def align_regions(
    images,
    regions,
    batch,
    out,
    num_images,
    channels,
    height,
    width,
    pooled_height,
    pooled_width,
    ratio,
    spatial_scale,
    shift,
    IS_AVERAGE: tl.constexpr,
    HAS_HALF_PIXEL: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """ROI align; a program has a block of the elements of one region. A region of no image becomes NaN."""
    region = tl.program_id(0).to(tl.int64)
    image = tl.load(batch + region).to(tl.int64)
    left = tl.load(regions + region * 4).to(tl.float32) * spatial_scale - shift
    top = tl.load(regions + region * 4 + 1).to(tl.float32) * spatial_scale - shift
    wide = tl.load(regions + region * 4 + 2).to(tl.float32) * spatial_scale - shift - left
    tall = tl.load(regions + region * 4 + 3).to(tl.float32) * spatial_scale - shift - top
    if not HAS_HALF_PIXEL:
        wide, tall = tl.maximum(wide, 1.0), tl.maximum(tall, 1.0)
    bin_y, bin_x = tall / pooled_height.to(tl.float32), wide / pooled_width.to(tl.float32)
    rows, columns = ratio, ratio
    is_sound = (image >= 0) & (image < num_images)
    if ratio == 0:
        is_sound = is_sound & (bin_y <= MAX_GRID) & (bin_x <= MAX_GRID)
        rows = tl.where(is_sound & (bin_y > 0), tl.ceil(bin_y), 0.0).to(tl.int32)
        columns = tl.where(is_sound & (bin_x > 0), tl.ceil(bin_x), 0.0).to(tl.int32)
    lane = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    size = channels * pooled_height * pooled_width
    readable = lane < tl.where(is_sound, size, 0)
    channel = lane // (pooled_height * pooled_width)
    i = (lane // pooled_width) % pooled_height
    j = lane % pooled_width
    plane = images + (image * channels + channel) * height * width
    total = tl.zeros((BLOCK,), tl.float32)
    if not IS_AVERAGE:
        total = tl.where(rows * columns > 0, float("-inf"), total)
    for a in range(rows):
        y = top + (i.to(tl.float32) + (a + 0.5) / rows) * bin_y
        for b in range(columns):
            x = left + (j.to(tl.float32) + (b + 0.5) / columns) * bin_x
            inside = readable & (y >= -1.0) & (y <= height) & (x >= -1.0) & (x <= width)
            one, two, three, four = load_corners(plane, y, x, height, width, inside)
            if IS_AVERAGE:
                total += one + two + three + four
            else:
                total = tl.maximum(total, tl.maximum(tl.maximum(one, two), tl.maximum(three, four)))
    if IS_AVERAGE:
        total = total / tl.maximum(rows * columns, 1).to(tl.float32)
    total = tl.where(is_sound, total, float("nan"))
    tl.store(out + region * size + lane, total, mask=lane < size)


@triton.jit
def read_box(regions, region, image_height, image_width, IS_ABSOLUTE: tl.constexpr, HAS_Y_FIRST: tl.constexpr):
    """A region as y1, x1, y2, x2 from 0 to 1 with the smaller corner first, and its height and width in pixels."""
    a = tl.load(regions + region * 4)
    b = tl.load(regions + region * 4 + 1)
    c = tl.load(regions + region * 4 + 2)
    d = tl.load(regions + region * 4 + 3)
    if not HAS_Y_FIRST:
        a, b, c, d = b, a, d, c
    limit_y, limit_x = image_height.to(tl.float32), image_width.to(tl.float32)
    if not IS_ABSOLUTE:
        limit_y, limit_x = limit_y * 0.0 + 1.0, limit_x * 0.0 + 1.0
    y1, y2, x1, x2 = tl.minimum(a, c), tl.maximum(a, c), tl.minimum(b, d), tl.maximum(b, d)
    y1, y2 = tl.maximum(tl.minimum(y1, limit_y), 0.0), tl.maximum(tl.minimum(y2, limit_y), 0.0)
    x1, x2 = tl.maximum(tl.minimum(x1, limit_x), 0.0), tl.maximum(tl.minimum(x2, limit_x), 0.0)
    tall, wide = y2.to(tl.float64) - y1.to(tl.float64), x2.to(tl.float64) - x1.to(tl.float64)
    if not IS_ABSOLUTE:
        tall, wide = tall * image_height, wide * image_width
    return y1 / limit_y, x1 / limit_x, y2 / limit_y, x2 / limit_x, tall, wide


@triton.jit
def place_bins(low, high, size, pooled, ratio, TRANSFORM: tl.constexpr):
    """Start and step of the bins along one side of a map, and how many points each has there."""
    length, count = size.to(tl.float32), pooled.to(tl.float32)
    if TRANSFORM == -1:
        start, end = low * (length - 1), high * (length - 1)
        step = (end - start) / tl.maximum(count - 1, 1.0)
    else:
        shift = 0.5 if TRANSFORM == 2 else 0.0
        start, end = low * length - shift, high * length - shift
        step = (end - start) / count
    adaptive = tl.maximum(tl.ceil((end - start) / count), 1.0).to(tl.int32)
    return start, step, tl.where(ratio > 0, ratio, adaptive)


@triton.jit
def sample_inside(plane, y, x, height, width, mask):
    """Points inside of a plane; zero where the mask is not set."""
    one, two, three, four = load_corners(plane, y, x, height, width, mask)
    return one + two + three + four


@triton.jit
def align_pyramid(
    regions,
    map0,
    map1,
    map2,
    map3,
    out,
    num_regions,
    channels,
    height0,
    width0,
    height1,
    width1,
    height2,
    width2,
    height3,
    width3,
    image_height,
    image_width,
    pooled,
    ratio,
    first_area,
    IS_ABSOLUTE: tl.constexpr,
    HAS_Y_FIRST: tl.constexpr,
    ADDS_ONE: tl.constexpr,
    TRANSFORM: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """ROI align from the map that fits the area of a region."""
    region = tl.program_id(0).to(tl.int64)
    y1, x1, y2, x2, tall, wide = read_box(regions, region, image_height, image_width, IS_ABSOLUTE, HAS_Y_FIRST)
    if ADDS_ONE:
        tall, wide = tall + 1.0, wide + 1.0
    level = tl.where(tall * wide > first_area, 1, 0) + tl.where(tall * wide > first_area * 4.0, 1, 0)
    level += tl.where(tall * wide > first_area * 16.0, 1, 0)
    height = tl.where(level == 3, height3, tl.where(level == 2, height2, tl.where(level == 1, height1, height0)))
    width = tl.where(level == 3, width3, tl.where(level == 2, width2, tl.where(level == 1, width1, width0)))
    top, step_y, rows = place_bins(y1, y2, height, pooled, ratio, TRANSFORM)
    left, step_x, columns = place_bins(x1, x2, width, pooled, ratio, TRANSFORM)
    offset = 0.5 if TRANSFORM > 0 else 0.0
    lane = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    size = channels * pooled * pooled
    plane = (region // num_regions * channels + lane // (pooled * pooled)) * height * width
    i, j = ((lane // pooled) % pooled).to(tl.float32), (lane % pooled).to(tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for p in range(rows):
        y = top + step_y * i + step_y * (p + offset) / rows
        for q in range(columns):
            x = left + step_x * j + step_x * (q + offset) / columns
            total += sample_inside(map0 + plane, y, x, height, width, lane < tl.where(level == 0, size, 0))
            total += sample_inside(map1 + plane, y, x, height, width, lane < tl.where(level == 1, size, 0))
            total += sample_inside(map2 + plane, y, x, height, width, lane < tl.where(level == 2, size, 0))
            total += sample_inside(map3 + plane, y, x, height, width, lane < tl.where(level == 3, size, 0))
    tl.store(out + region * size + lane, total / (rows * columns).to(tl.float32), mask=lane < size)


@triton.jit
def crop_boxes(images, boxes, out, num_boxes, channels, height, width, crop_height, crop_width, BLOCK: tl.constexpr):
    """Crop and resize; what lies outside of the image is zero."""
    region = tl.program_id(0).to(tl.int64)
    image = region // num_boxes
    y1 = tl.load(boxes + region * 4)
    x1 = tl.load(boxes + region * 4 + 1)
    y2 = tl.load(boxes + region * 4 + 2)
    x2 = tl.load(boxes + region * 4 + 3)
    last_y, last_x = (height - 1).to(tl.float32), (width - 1).to(tl.float32)
    lane = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = lane < channels * crop_height * crop_width
    i, j = ((lane // crop_width) % crop_height).to(tl.float32), (lane % crop_width).to(tl.float32)
    step_y = (y2 - y1) * last_y / tl.maximum(crop_height - 1, 1).to(tl.float32)
    step_x = (x2 - x1) * last_x / tl.maximum(crop_width - 1, 1).to(tl.float32)
    y = tl.where(crop_height > 1, y1 * last_y + i * step_y, 0.5 * (y1 + y2) * last_y)
    x = tl.where(crop_width > 1, x1 * last_x + j * step_x, 0.5 * (x1 + x2) * last_x)
    inside = mask & (y >= 0) & (y <= last_y) & (x >= 0) & (x <= last_x)
    plane = images + (image * channels + lane // (crop_height * crop_width)) * height * width
    one, two, three, four = load_corners(plane, y, x, height, width, inside)
    size = channels * crop_height * crop_width
    tl.store(out + region * size + lane, one + two + three + four, mask=mask)
