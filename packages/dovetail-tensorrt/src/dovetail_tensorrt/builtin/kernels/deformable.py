"""Sampling at places that the network computes: deformable attention, and the parts of deformable convolution."""
# mypy: ignore-errors

import triton
import triton.language as tl

__all__ = ["attend", "multiply_columns", "sample_taps"]


@triton.jit
def sample_padded(base, y, x, height, width, row_stride, column_stride, mask):
    """A point of a map that is zero all around; ``base`` is its element (0, 0)."""
    near = mask & (y > -1.0) & (y < height) & (x > -1.0) & (x < width)
    y, x = tl.where(near, y, 0.0), tl.where(near, x, 0.0)
    floor_y, floor_x = tl.floor(y), tl.floor(x)
    down, along = y - floor_y, x - floor_x
    top, left = floor_y.to(tl.int32), floor_x.to(tl.int32)
    place = base + top * row_stride + left * column_stride
    has_top, has_low = near & (top >= 0), near & (top + 1 < height)
    has_left, has_right = left >= 0, left + 1 < width
    one = tl.load(place, mask=has_top & has_left, other=0).to(tl.float32) * ((1 - down) * (1 - along))
    two = tl.load(place + column_stride, mask=has_top & has_right, other=0).to(tl.float32) * ((1 - down) * along)
    three = tl.load(place + row_stride, mask=has_low & has_left, other=0).to(tl.float32) * (down * (1 - along))
    four = tl.load(place + row_stride + column_stride, mask=has_low & has_right, other=0).to(tl.float32)
    return one + two + three + four * (down * along)


@triton.jit
def attend(
    value,
    shapes,
    starts,
    places,
    weights,
    out,
    total,
    length,
    queries,
    heads,
    depth,
    levels,
    points,
    BLOCK: tl.constexpr,
):
    """Multi-scale deformable attention; a level that does not lie in the values makes everything NaN."""
    lane = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = lane < total
    item, head = lane // depth, (lane // depth) % heads
    image = item // (heads * queries)
    result = tl.zeros((BLOCK,), tl.float32)
    for level in range(levels):
        height, width = tl.load(shapes + level * 2).to(tl.int32), tl.load(shapes + level * 2 + 1).to(tl.int32)
        start = tl.load(starts + level).to(tl.int64)
        is_sound = (height >= 0) & (width >= 0) & (start >= 0)
        is_sound = is_sound & (start + height.to(tl.int64) * width <= length)
        readable = lane < tl.where(is_sound, total, 0)
        base = value + ((image * length + start) * heads + head) * depth + lane % depth
        for point in range(points):
            number = (item * levels + level) * points + point
            x = tl.load(places + number * 2, mask=mask, other=0).to(tl.float32) * width - 0.5
            y = tl.load(places + number * 2 + 1, mask=mask, other=0).to(tl.float32) * height - 0.5
            weight = tl.load(weights + number, mask=mask, other=0).to(tl.float32)
            stride = heads * depth
            result += weight * sample_padded(base, y, x, height, width, width * stride, stride, readable)
        result = tl.where(is_sound, result, float("nan"))
    tl.store(out + lane, result, mask=mask)


@triton.jit
def sample_taps(
    images,
    offset,
    mask_values,
    columns,
    total,
    channels,
    height,
    width,
    out_height,
    out_width,
    taps_height,
    taps_width,
    stride_y,
    stride_x,
    padding_y,
    padding_x,
    dilation_y,
    dilation_x,
    groups,
    BLOCK: tl.constexpr,
):
    """What each weight is multiplied with: columns (image, channel, tap, pixel)."""
    lane = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = lane < total
    pixels, taps = out_height * out_width, taps_height * taps_width
    pixel, tap = (lane % pixels).to(tl.int32), ((lane // pixels) % taps).to(tl.int32)
    channel = ((lane // pixels // taps) % channels).to(tl.int32)
    image = lane // pixels // taps // channels
    group = channel // (channels // groups)
    number = (image * groups + group) * taps + tap
    moved_y = tl.load(offset + number * 2 * pixels + pixel, mask=mask, other=0).to(tl.float32)
    moved_x = tl.load(offset + (number * 2 + 1) * pixels + pixel, mask=mask, other=0).to(tl.float32)
    factor = tl.load(mask_values + number * pixels + pixel, mask=mask, other=0).to(tl.float32)
    base_y = (pixel // out_width) * stride_y - padding_y + (tap // taps_width) * dilation_y
    base_x = (pixel % out_width) * stride_x - padding_x + (tap % taps_width) * dilation_x
    plane = images + (image * channels + channel) * height * width
    y, x = base_y.to(tl.float32) + moved_y, base_x.to(tl.float32) + moved_x
    sampled = sample_padded(plane, y, x, height, width, width, 1, mask)
    tl.store(columns + lane, sampled * factor, mask=mask)


@triton.jit
def multiply_columns(
    weight,
    columns,
    bias,
    out,
    outputs,
    depth,
    pixels,
    groups,
    HAS_BIAS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """The product of the weights (group, output, depth) with columns (image, group, depth, pixel), plus the bias."""
    image, group = (tl.program_id(0) // groups).to(tl.int64), tl.program_id(0) % groups
    row = tl.program_id(2) * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    first = weight + (group * outputs).to(tl.int64) * depth
    second = columns + (image * groups + group) * depth * pixels
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, depth, BLOCK_K):
        inner = start + tl.arange(0, BLOCK_K)
        left_mask = (row[:, None] < outputs) & (inner[None, :] < depth)
        left = tl.load(first + row[:, None].to(tl.int64) * depth + inner[None, :], mask=left_mask, other=0)
        right_mask = (inner[:, None] < depth) & (column[None, :] < pixels)
        right = tl.load(second + inner[:, None].to(tl.int64) * pixels + column[None, :], mask=right_mask, other=0)
        total = tl.dot(left, right, total, input_precision="ieee")
    number = group * outputs + row
    if HAS_BIAS:
        total += tl.load(bias + number, mask=row < outputs, other=0).to(tl.float32)[:, None]
    target = out + (image * groups * outputs + number[:, None]) * pixels + column[None, :]
    tl.store(target, total, mask=(row[:, None] < outputs) & (column[None, :] < pixels))
