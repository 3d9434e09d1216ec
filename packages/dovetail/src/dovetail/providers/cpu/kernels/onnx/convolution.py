"""Convolutions: Conv, ConvTranspose, their integer and quantized forms, and DeformConv, in any number of axes.

Each one turns the windows of an image into the columns of a matrix, so that the sums are matrix products; images are
taken one at a time to bound the memory that the columns need.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dovetail.providers.cpu._numeric import FLOATS, Array
from dovetail.providers.cpu.kernels._checks import require, require_room, spread
from dovetail.providers.cpu.kernels._interpolation import sample_linear
from dovetail.providers.cpu.kernels._quantization import requantize
from dovetail.providers.cpu.kernels._support import float_reference
from dovetail.providers.cpu.kernels._windows import Window, accumulate_taps, make_window, pad_spatial, view_windows
from dovetail.providers.cpu.registry import kernel

__all__ = ["conv", "conv_integer", "conv_transpose", "deform_conv", "qlinear_conv"]

_BYTES = ("int8", "uint8")


@kernel("Conv", since=1, types={"T": FLOATS})
@float_reference
def conv(
    x: Array,
    w: Array,
    b: Array | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Array:
    """Convolve each image with the filters of its group and add the bias."""
    window = _conv_window("Conv", x, w, auto_pad, dilations, group, kernel_shape, pads, strides)
    return _add_bias(_convolve(x, w, window, group), b)


@kernel("ConvInteger", since=10, types={"T1": _BYTES, "T2": _BYTES})
def conv_integer(
    x: Array,
    w: Array,
    x_zero_point: Array | None = None,
    w_zero_point: Array | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Array:
    """Convolve bytes exactly and return int32 sums."""
    window = _conv_window("ConvInteger", x, w, auto_pad, dilations, group, kernel_shape, pads, strides)
    return _convolve_bytes(x, w, x_zero_point, w_zero_point, window, group)


@kernel("QLinearConv", since=10, types={"T1": _BYTES, "T2": _BYTES, "T3": _BYTES})
def qlinear_conv(
    x: Array,
    x_scale: Array,
    x_zero_point: Array,
    w: Array,
    w_scale: Array,
    w_zero_point: Array,
    y_scale: Array,
    y_zero_point: Array,
    b: Array | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Array:
    """Convolve quantized tensors with int32 sums and quantize the result."""
    window = _conv_window("QLinearConv", x, w, auto_pad, dilations, group, kernel_shape, pads, strides)
    sums = _add_bias(_convolve_bytes(x, w, x_zero_point, w_zero_point, window, group), b)
    scale = x_scale.reshape(()) * _per_filter(w_scale, x.ndim - 1)
    return requantize(sums, scale, y_scale, y_zero_point)


def _conv_window(
    op: str,
    x: Array,
    w: Array,
    auto_pad: str,
    dilations: Sequence[int] | None,
    group: int,
    kernel_shape: Sequence[int] | None,
    pads: Sequence[int] | None,
    strides: Sequence[int] | None,
) -> Window:
    require(x.ndim == w.ndim >= 2, op, "the input and the filters differ in rank", expected=x.ndim, got=w.ndim)
    filters, channels = w.shape[:2]
    require(x.shape[1] == channels * group, op, "channels do not fit", expected=channels * group, got=x.shape[1])
    require(group > 0 and filters % group == 0, op, f"{filters} filters do not divide into {group} groups")
    _check_kernel(op, w, kernel_shape)
    return make_window(op, x.shape[2:], w.shape[2:], strides=strides, dilations=dilations, pads=pads, auto_pad=auto_pad)


def _check_kernel(op: str, w: Array, kernel_shape: Sequence[int] | None) -> None:
    taps = w.shape[2:] if kernel_shape is None else tuple(kernel_shape)
    require(taps == w.shape[2:], op, "'kernel_shape' differs from the filters", expected=w.shape[2:], got=taps)


def _convolve(x: Array, w: Array, window: Window, group: int) -> Array:
    windows = view_windows(pad_spatial(x, window, 0), window)
    rank = len(window.kernel)
    # From (batch, channel, *outputs, *kernel) to columns: (batch, channel, *kernel, *outputs).
    order = (0, 1, *range(2 + rank, 2 + 2 * rank), *range(2, 2 + rank))
    columns = windows.transpose(order)
    filters = w.reshape(group, w.shape[0] // group, math.prod(w.shape[1:]))
    points = math.prod(window.outputs)
    y = np.empty((x.shape[0], w.shape[0], points), dtype=x.dtype)
    for image, result in zip(columns, y, strict=True):
        matrix = image.reshape(group, filters.shape[2], points)
        np.matmul(filters, matrix, out=result.reshape(group, -1, points) if points else None)
    return y.reshape(x.shape[0], w.shape[0], *window.outputs)


def _convolve_bytes(
    x: Array, w: Array, x_zero_point: Array | None, w_zero_point: Array | None, window: Window, group: int
) -> Array:
    # float64 holds every sum of byte products exactly, and unlike integers it has a fast matrix product.
    data, filters = x.astype(np.float64), w.astype(np.float64)
    if x_zero_point is not None:
        data -= x_zero_point.astype(np.float64).reshape(())
    if w_zero_point is not None:
        filters -= _per_filter(w_zero_point.astype(np.float64), w.ndim)
    return _convolve(data, filters, window, group).astype(np.int64).astype(np.int32)


def _per_filter(values: Array, rank: int) -> Array:
    """One value, or one a filter, shaped to broadcast over an array whose first axis is the filters."""
    return values.reshape(()) if values.size == 1 else values.reshape(-1, *(1,) * (rank - 1))


def _add_bias(y: Array, b: Array | None) -> Array:
    if b is None:
        return y
    y += b.reshape(1, -1, *(1,) * (y.ndim - 2))
    return y


@kernel("ConvTranspose", since=1, types={"T": FLOATS})
@float_reference
def conv_transpose(
    x: Array,
    w: Array,
    b: Array | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    output_padding: Sequence[int] | None = None,
    output_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Array:
    """Spread each input element over the output, weighted by the filters (the gradient of Conv)."""
    op, rank = "ConvTranspose", x.ndim - 2
    require(x.ndim == w.ndim >= 2, op, "the input and the filters differ in rank", expected=x.ndim, got=w.ndim)
    require(x.shape[1] == w.shape[0], op, "channels do not fit", expected=w.shape[0], got=x.shape[1])
    _check_kernel(op, w, kernel_shape)
    require(group > 0 and x.shape[1] % group == 0, op, f"{x.shape[1]} channels do not divide into {group} groups")
    steps = spread(strides, 1, rank, op=op, name="strides")
    spacings = spread(dilations, 1, rank, op=op, name="dilations")
    extra = spread(output_padding, 0, rank, op=op, name="output_padding")
    require(min((*steps, *spacings), default=1) > 0, op, "strides and dilations must be positive")
    require(min(extra, default=0) >= 0, op, "'output_padding' must not be negative", got=extra)
    fulls = tuple(
        s * (n - 1) + e + (k - 1) * d + 1
        for s, n, e, k, d in zip(steps, x.shape[2:], extra, w.shape[2:], spacings, strict=True)
    )
    if auto_pad in ("SAME_UPPER", "SAME_LOWER") and not output_shape:
        output_shape = [n * s for n, s in zip(x.shape[2:], steps, strict=True)]
    begins, outputs = _transpose_crop(op, fulls, pads, output_shape, auto_pad)
    sizes = tuple(max(full, begin + n) for full, begin, n in zip(fulls, begins, outputs, strict=True))
    require_room(op, (x.shape[0], w.shape[1] * group, *sizes), x.dtype)
    y = _spread_taps(x, w, group, steps, spacings, sizes)
    crop = tuple(slice(begin, begin + n) for begin, n in zip(begins, outputs, strict=True))
    return _add_bias(y[:, :, *crop].copy(), b)


def _transpose_crop(
    op: str, fulls: Sequence[int], pads: Sequence[int] | None, output_shape: Sequence[int] | None, auto_pad: str
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Where the output starts in the uncropped result, and its size, for each axis."""
    rank = len(fulls)
    if not output_shape:
        both = spread(pads if auto_pad == "NOTSET" else None, 0, 2 * rank, op=op, name="pads")
        sizes = tuple(full - both[i] - both[rank + i] for i, full in enumerate(fulls))
        require(min((*both, *sizes), default=0) >= 0, op, "'pads' must leave an output", got=both)
        return both[:rank], sizes
    outputs = tuple(int(n) for n in output_shape[-rank:])
    require(len(outputs) == rank, op, "'output_shape' has the wrong length", expected=rank, got=len(outputs))
    require(min(outputs, default=0) >= 0, op, "'output_shape' must not be negative", got=outputs)
    totals = [max(full - n, 0) for full, n in zip(fulls, outputs, strict=True)]
    return tuple(t // 2 if auto_pad == "SAME_UPPER" else t - t // 2 for t in totals), outputs


def _spread_taps(
    x: Array, w: Array, group: int, strides: tuple[int, ...], dilations: tuple[int, ...], sizes: tuple[int, ...]
) -> Array:
    batch, channels, *spatial = x.shape
    per_group, kernel_shape = w.shape[1], w.shape[2:]
    inputs = x.reshape(batch, group, channels // group, math.prod(spatial))
    filters = w.reshape(group, channels // group, per_group * math.prod(kernel_shape))
    products = np.matmul(filters.swapaxes(1, 2), inputs)
    columns = products.reshape(batch, group * per_group, *kernel_shape, *spatial)
    return accumulate_taps(columns, strides, dilations, sizes)


@kernel("DeformConv", since=19, types={"T": FLOATS})
@float_reference
def deform_conv(
    x: Array,
    w: Array,
    offset: Array,
    b: Array | None = None,
    mask: Array | None = None,
    *,
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    offset_group: int = 1,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Array:
    """Convolve at sampling points that the offsets move, weighted by the mask."""
    op = "DeformConv"
    window = _conv_window(op, x, w, "NOTSET", dilations, group, kernel_shape, pads, strides)
    taps, rank, points = math.prod(window.kernel), len(window.kernel), math.prod(window.outputs)
    require(x.shape[1] % offset_group == 0, op, f"{x.shape[1]} channels do not divide into {offset_group} groups")
    wanted = (x.shape[0], offset_group * taps * rank, *window.outputs)
    require(offset.shape == wanted, op, "'offset' has the wrong shape", expected=wanted, got=offset.shape)
    moves = offset.reshape(x.shape[0], offset_group, taps, rank, points)
    weights = None if mask is None else mask.reshape(x.shape[0], offset_group, 1, taps * points)
    base = _tap_positions(window).astype(x.dtype)
    filters = w.reshape(group, w.shape[0] // group, math.prod(w.shape[1:]))
    y = np.empty((x.shape[0], w.shape[0], points), dtype=x.dtype)
    for n, image in enumerate(x):
        positions = np.moveaxis(base + moves[n], 2, 1).reshape(offset_group, rank, taps * points)
        samples = sample_linear(image.reshape(offset_group, x.shape[1] // offset_group, *x.shape[2:]), positions)
        if weights is not None:
            samples *= weights[n]
        y[n] = np.matmul(filters, samples.reshape(group, filters.shape[2], points)).reshape(w.shape[0], points)
    return _add_bias(y.reshape(x.shape[0], w.shape[0], *window.outputs), b)


def _tap_positions(window: Window) -> Array:
    """Undeformed sampling points in input coordinates: (taps, axes, points)."""
    rank = len(window.kernel)
    taps = np.indices(window.kernel).reshape(rank, -1, 1) * np.reshape(window.dilations, (rank, 1, 1))
    starts = np.indices(window.outputs).reshape(rank, 1, -1) * np.reshape(window.strides, (rank, 1, 1))
    return np.moveaxis(taps + starts - np.reshape(window.begins, (rank, 1, 1)), 0, 1)
