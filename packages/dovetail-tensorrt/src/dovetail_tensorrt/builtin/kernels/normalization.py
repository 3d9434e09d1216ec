"""Normalization of groups of channels over their own mean and variance, in any of the packed formats."""
# mypy: ignore-errors

import triton
import triton.language as tl

__all__ = ["normalize"]


@triton.jit
def normalize(
    values,
    scale,
    bias,
    out,
    channels,
    per_group,
    size,
    lanes,
    image_stride,
    vector_stride,
    pixel_stride,
    epsilon,
    negative_slope,
    in_scale,
    out_scale,
    HAS_RELU: tl.constexpr,
    IS_QUANTIZED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One group of one image in a program; channels that only fill a vector up become zero.

    Channel c of pixel p is at (c // lanes) * vector_stride + c % lanes + p * pixel_stride.
    """
    image, group = tl.program_id(0).to(tl.int64), tl.program_id(1)
    values += image * image_stride
    out += image * image_stride
    count = per_group * size
    is_filling = group * per_group >= channels
    number = count.to(tl.float32)
    sums = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, count, BLOCK):
        lane = start + tl.arange(0, BLOCK)
        channel, pixel = group * per_group + lane // size, lane % size
        place = (channel // lanes).to(tl.int64) * vector_stride + channel % lanes + pixel.to(tl.int64) * pixel_stride
        sums += tl.load(values + place, mask=lane < count, other=0).to(tl.float32)
    mean = tl.sum(sums, 0) / number
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, count, BLOCK):
        lane = start + tl.arange(0, BLOCK)
        channel, pixel = group * per_group + lane // size, lane % size
        place = (channel // lanes).to(tl.int64) * vector_stride + channel % lanes + pixel.to(tl.int64) * pixel_stride
        value = tl.load(values + place, mask=lane < count, other=0).to(tl.float32) - mean
        squares += tl.where(lane < count, value * value, 0.0)
    variance = tl.sum(squares, 0) / number
    factor = in_scale / tl.sqrt(variance * in_scale * in_scale + epsilon)
    for start in range(0, count, BLOCK):
        lane = start + tl.arange(0, BLOCK)
        channel, pixel = group * per_group + lane // size, lane % size
        place = (channel // lanes).to(tl.int64) * vector_stride + channel % lanes + pixel.to(tl.int64) * pixel_stride
        value = tl.load(values + place, mask=lane < count, other=0).to(tl.float32)
        known = (lane < count) & (channel < channels)
        gain = tl.load(scale + channel, mask=known, other=0)
        shift = tl.load(bias + channel, mask=known, other=0)
        result = (value - mean) * factor * gain + shift
        if HAS_RELU:
            result = tl.where(result < 0, result * negative_slope, result)
        if IS_QUANTIZED:
            result = result / out_scale
            below = tl.floor(result)
            rest = result - below
            is_odd = (below.to(tl.int32) % 2) != 0
            result = tl.where((rest > 0.5) | ((rest == 0.5) & is_odd), below + 1.0, below)
            result = tl.minimum(tl.maximum(result, -128.0), 127.0)
        result = tl.where(is_filling, 0.0, result)
        tl.store(out + place, result, mask=lane < count)
