"""Layers with a window: convolution, deconvolution, pooling, and local response normalization."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from dovetail.network.api.enums import PaddingMode, PoolingType
from dovetail.types import DimsHW, Weights
from tests.support.layer_cases import Expected, Sketch, case, rand

EXPLICIT = PaddingMode.EXPLICIT_ROUND_DOWN
UP = PaddingMode.EXPLICIT_ROUND_UP


def find_pads(size: int, reach: int, stride: int, pre: int, post: int, mode: PaddingMode) -> tuple[int, int, int]:
    """Padding before and after, and the number of windows."""
    if mode in (PaddingMode.SAME_UPPER, PaddingMode.SAME_LOWER):
        count = -(-size // stride)
        total = max(0, (count - 1) * stride + reach - size)
        small, large = total // 2, total - total // 2
        return (small, large, count) if mode == PaddingMode.SAME_UPPER else (large, small, count)
    room = size + pre + post - reach
    count = (-(-room // stride) if mode == UP else room // stride) + 1
    return pre, max(post, (count - 1) * stride + reach - size - pre), count


def convolve(
    x: Any, w: Any, b: Any, stride: Any, pre: Any, post: Any, dilation: Any, groups: int, mode: PaddingMode
) -> np.ndarray:
    """A convolution, window by window."""
    spatial = x.shape[2:]
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, w.shape[2:], strict=True)]
    plan = [find_pads(*numbers, mode) for numbers in zip(spatial, reach, stride, pre, post, strict=True)]
    padded = np.pad(x, [(0, 0), (0, 0), *((a, z) for a, z, _ in plan)])
    result = np.zeros((x.shape[0], w.shape[0], *(count for _, _, count in plan)), np.float64)
    per_group, maps = w.shape[1], w.shape[0] // groups
    for position in itertools.product(*(range(count) for _, _, count in plan)):
        window = tuple(slice(p * s, p * s + r, d) for p, s, r, d in zip(position, stride, reach, dilation, strict=True))
        for group in range(groups):
            part = padded[(slice(None), slice(group * per_group, (group + 1) * per_group), *window)]
            kernel = w[group * maps : (group + 1) * maps]
            result[(slice(None), slice(group * maps, (group + 1) * maps), *position)] = np.tensordot(
                part, kernel, axes=(range(1, part.ndim), range(1, kernel.ndim))
            )
    if b is not None:
        result += b.reshape(1, -1, *([1] * len(spatial)))
    return result.astype(np.float32)


@case("add_convolution_nd", "defaults")
@case("add_convolution_nd", "bias", bias=True)
@case("add_convolution_nd", "stride and padding", stride=(2, 1), pre=(1, 2), post=(1, 2))
@case("add_convolution_nd", "asymmetric padding", pre=(0, 2), post=(1, 0))
@case("add_convolution_nd", "dilation and groups", dilation=(2, 1), groups=2)
@case("add_convolution_nd", "round up", mode=UP, stride=(3, 2), pre=(1, 0), post=(0, 1), bias=True)
@case("add_convolution_nd", "same upper", mode=PaddingMode.SAME_UPPER, stride=(2, 3))
@case("add_convolution_nd", "same lower", mode=PaddingMode.SAME_LOWER, stride=(2, 2))
@case("add_convolution_nd", "same upper dilated", mode=PaddingMode.SAME_UPPER, dilation=(2, 3), kernel=(3, 2))
@case("add_convolution_nd", "same lower dilated", mode=PaddingMode.SAME_LOWER, dilation=(3, 1), kernel=(2, 3))
@case("add_convolution_nd", "same upper strided", mode=PaddingMode.SAME_UPPER, dilation=(2, 2), stride=(2, 3))
@case("add_convolution_nd", "same lower strided", mode=PaddingMode.SAME_LOWER, dilation=(1, 3), stride=(3, 2))
@case("add_convolution_nd", "one dimension", size=(9,), kernel=(4,), stride=(2,), pre=(1,), post=(1,), dilation=(1,))
@case(
    "add_convolution_nd", "three dimensions", size=(5, 4, 6), kernel=(2, 3, 2), stride=(1, 2, 1), pre=(0, 1, 0),
    post=(0, 1, 0), dilation=(1, 1, 2),
)  # fmt: skip
def convolution(
    sketch: Sketch,
    size: Any = (8, 7),
    kernel: Any = (3, 2),
    stride: Any = (1, 1),
    pre: Any = (0, 0),
    post: Any = (0, 0),
    dilation: Any = (1, 1),
    groups: int = 1,
    mode: PaddingMode = EXPLICIT,
    bias: bool = False,
) -> Expected:
    x, w = rand(2, 4, *size), rand(6, 4 // groups, *kernel)
    b = rand(6) if bias else None
    layer = sketch.network.add_convolution_nd(sketch.input(x), 6, kernel, w, b)
    layer.stride_nd, layer.dilation_nd, layer.num_groups = stride, dilation, groups
    layer.pre_padding, layer.post_padding, layer.padding_mode = pre, post, mode
    return [(layer.get_output(0), convolve(x, w, b, stride, pre, post, dilation, groups, mode))]


@case("add_convolution_nd", "kernel and bias from tensors")
def convolution_inputs(sketch: Sketch) -> Expected:
    x, w, b = rand(1, 3, 5, 5), rand(2, 3, 3, 3), rand(2)
    layer = sketch.network.add_convolution_nd(sketch.input(x), 2, DimsHW(3, 3), Weights())
    layer.set_input(1, sketch.input(w, fixed=True))
    layer.set_input(2, sketch.input(b, fixed=True))
    layer.padding_nd = (1, 1)
    return [(layer.get_output(0), convolve(x, w, b, (1, 1), (1, 1), (1, 1), (1, 1), 1, EXPLICIT))]


@case("add_convolution_nd", "flat weights and other numbers later")
def convolution_changed(sketch: Sketch) -> Expected:
    x, w, b = rand(1, 2, 6, 6), rand(4, 2, 2, 2), rand(4)
    layer = sketch.network.add_convolution_nd(sketch.input(x), 9, (1, 1), rand(18))
    layer.num_output_maps, layer.kernel_size_nd = 4, (2, 2)
    layer.kernel, layer.bias = Weights(w.reshape(-1)), b
    return [(layer.get_output(0), convolve(x, w, b, (1, 1), (0, 0), (0, 0), (1, 1), 1, EXPLICIT))]


def deconvolve(
    x: Any, w: Any, b: Any, stride: Any, pre: Any, post: Any, dilation: Any, groups: int, mode: PaddingMode
) -> np.ndarray:
    """The transpose of a convolution: every input element adds a scaled kernel to the output."""
    spatial, reach = x.shape[2:], [d * (k - 1) + 1 for d, k in zip(dilation, w.shape[2:], strict=True)]
    full = [(size - 1) * s + r for size, s, r in zip(spatial, stride, reach, strict=True)]
    maps, per_group = w.shape[1], x.shape[1] // groups
    result = np.zeros((x.shape[0], maps * groups, *full), np.float64)
    for position in itertools.product(*map(range, spatial)):
        window = tuple(slice(p * s, p * s + r, d) for p, s, r, d in zip(position, stride, reach, dilation, strict=True))
        for channel in range(x.shape[1]):
            group = channel // per_group
            target = (slice(None), slice(group * maps, (group + 1) * maps), *window)
            value = x[(slice(None), channel, *position)].reshape(-1, *([1] * (w.ndim - 1)))
            result[target] += value * w[channel]
    cuts = list(zip(pre, post, strict=True))
    if mode in (PaddingMode.SAME_UPPER, PaddingMode.SAME_LOWER):
        totals = [max(0, f - size * s) for f, size, s in zip(full, spatial, stride, strict=True)]
        halves = [(t // 2, t - t // 2) for t in totals]
        cuts = halves if mode == PaddingMode.SAME_UPPER else [(z, a) for a, z in halves]
    window = tuple(slice(a, f - z) for (a, z), f in zip(cuts, full, strict=True))
    result = result[(slice(None), slice(None), *window)]
    if b is not None:
        result = result + b.reshape(1, -1, *([1] * len(spatial)))
    return result.astype(np.float32)


@case("add_deconvolution_nd", "defaults")
@case("add_deconvolution_nd", "stride, padding, bias", stride=(2, 3), pre=(1, 0), post=(0, 2), bias=True)
@case("add_deconvolution_nd", "dilation and groups", dilation=(2, 2), groups=2)
@case("add_deconvolution_nd", "round up", stride=(2, 2), pre=(1, 1), post=(1, 1), mode=UP)
@case("add_deconvolution_nd", "same upper", stride=(2, 2), mode=PaddingMode.SAME_UPPER)
@case("add_deconvolution_nd", "same lower", stride=(2, 2), mode=PaddingMode.SAME_LOWER)
@case("add_deconvolution_nd", "same upper dilated", stride=(2, 1), dilation=(2, 3), mode=PaddingMode.SAME_UPPER)
@case("add_deconvolution_nd", "same lower dilated", stride=(1, 2), dilation=(2, 3), mode=PaddingMode.SAME_LOWER)
@case("add_deconvolution_nd", "same upper with gaps", stride=(4, 5), mode=PaddingMode.SAME_UPPER)
@case("add_deconvolution_nd", "same lower with gaps", stride=(5, 2), mode=PaddingMode.SAME_LOWER)
def deconvolution(
    sketch: Sketch,
    stride: Any = (1, 1),
    pre: Any = (0, 0),
    post: Any = (0, 0),
    dilation: Any = (1, 1),
    groups: int = 1,
    mode: PaddingMode = EXPLICIT,
    bias: bool = False,
) -> Expected:
    x, w = rand(2, 4, 5, 4), rand(4, 6 // groups, 3, 3)
    b = rand(6) if bias else None
    layer = sketch.network.add_deconvolution_nd(sketch.input(x), 6, (3, 3), w, b)
    layer.stride_nd, layer.dilation_nd, layer.num_groups = stride, dilation, groups
    layer.pre_padding, layer.post_padding, layer.padding_mode = pre, post, mode
    return [(layer.get_output(0), deconvolve(x, w, b, stride, pre, post, dilation, groups, mode))]


@case("add_deconvolution_nd", "kernel and bias from tensors")
def deconvolution_inputs(sketch: Sketch) -> Expected:
    x, w, b = rand(1, 3, 4, 4), rand(3, 2, 2, 2), rand(2)
    layer = sketch.network.add_deconvolution_nd(sketch.input(x), 2, (2, 2))
    layer.set_input(1, sketch.input(w, fixed=True))
    layer.set_input(2, sketch.input(b, fixed=True))
    return [(layer.get_output(0), deconvolve(x, w, b, (1, 1), (0, 0), (0, 0), (1, 1), 1, EXPLICIT))]


@case("add_deconvolution_nd", "other numbers later")
def deconvolution_changed(sketch: Sketch) -> Expected:
    x, w, b = rand(1, 3, 4, 4), rand(3, 2, 2, 2), rand(2)
    layer = sketch.network.add_deconvolution_nd(sketch.input(x), 9, (1, 1), rand(27), rand(9))
    layer.num_output_maps, layer.kernel_size_nd, layer.kernel, layer.bias = 2, (2, 2), w, b
    layer.padding_nd = (1, 0)
    return [(layer.get_output(0), deconvolve(x, w, b, (1, 1), (1, 0), (1, 0), (1, 1), 1, EXPLICIT))]


def pool(x: Any, kind: PoolingType, window: Any, stride: Any, pre: Any, post: Any, mode: Any, excludes: bool) -> Any:
    plan = [find_pads(*numbers, mode) for numbers in zip(x.shape[2:], window, stride, pre, post, strict=True)]
    result = np.zeros((*x.shape[:2], *(count for _, _, count in plan)), np.float32)
    for position in itertools.product(*(range(count) for _, _, count in plan)):
        spans = []
        cells = 1
        for p, s, k, (before, _, _), size, after in zip(position, stride, window, plan, x.shape[2:], post, strict=True):
            start = p * s - before
            spans.append(slice(max(0, start), min(size, start + k)))
            # Padding that was only added to round up is not padding that was asked for.
            last = size + (after if mode in (EXPLICIT, UP) else k)
            cells *= min(start + k, last) - start
        part = x[(slice(None), slice(None), *spans)]
        axes = tuple(range(2, x.ndim))
        count = np.prod(part.shape[2:]) if excludes else cells
        value = part.max(axes) if kind == PoolingType.MAX else part.sum(axes) / count
        result[(slice(None), slice(None), *position)] = value
    return result


@case("add_pooling_nd", "max", kind=PoolingType.MAX)
@case("add_pooling_nd", "average", kind=PoolingType.AVERAGE, stride=(2, 1), pre=(1, 1), post=(1, 0))
@case(
    "add_pooling_nd", "average with padding counted", kind=PoolingType.AVERAGE, pre=(1, 1), post=(1, 0), excludes=False
)
@case("add_pooling_nd", "blend", kind=PoolingType.MAX_AVERAGE_BLEND, blend=0.3, stride=(2, 2))
@case("add_pooling_nd", "round up", kind=PoolingType.MAX, stride=(2, 3), mode=UP)
@case("add_pooling_nd", "average round up", kind=PoolingType.AVERAGE, stride=(2, 3), mode=UP, pre=(1, 0))
@case("add_pooling_nd", "same upper", kind=PoolingType.MAX, stride=(2, 2), mode=PaddingMode.SAME_UPPER)
@case("add_pooling_nd", "same upper with gaps", kind=PoolingType.MAX, stride=(4, 3), mode=PaddingMode.SAME_UPPER)
@case("add_pooling_nd", "same lower", kind=PoolingType.AVERAGE, stride=(2, 2), mode=PaddingMode.SAME_LOWER)
@case(
    "add_pooling_nd", "three dimensions", kind=PoolingType.MAX, size=(4, 5, 6), window=(2, 2, 3), stride=(2, 1, 3),
    pre=(0, 0, 0), post=(0, 0, 0),
)  # fmt: skip
def pooling(
    sketch: Sketch,
    kind: PoolingType,
    size: Any = (7, 8),
    window: Any = (3, 2),
    stride: Any = (1, 1),
    pre: Any = (0, 0),
    post: Any = (0, 0),
    mode: PaddingMode = EXPLICIT,
    excludes: bool = True,
    blend: float = 0.0,
) -> Expected:
    x = rand(2, 3, *size)
    layer = sketch.network.add_pooling_nd(sketch.input(x), PoolingType.MAX, (1,) * len(window))
    layer.type, layer.window_size_nd, layer.stride_nd = kind, window, stride
    layer.pre_padding, layer.post_padding, layer.padding_mode = pre, post, mode
    layer.average_count_excludes_padding, layer.blend_factor = excludes, blend
    rest = (window, stride, pre, post, mode, excludes)
    if kind != PoolingType.MAX_AVERAGE_BLEND:
        return [(layer.get_output(0), pool(x, kind, *rest))]
    largest, mean = pool(x, PoolingType.MAX, *rest), pool(x, PoolingType.AVERAGE, *rest)
    return [(layer.get_output(0), (1 - blend) * largest + blend * mean)]


@case("add_pooling_nd", "the same padding on both sides")
def pooling_padding(sketch: Sketch) -> Expected:
    x = rand(1, 2, 5, 5)
    layer = sketch.network.add_pooling_nd(sketch.input(x), PoolingType.AVERAGE, (3, 3))
    layer.padding_nd = (1, 2)
    return [(layer.get_output(0), pool(x, PoolingType.AVERAGE, (3, 3), (1, 1), (1, 2), (1, 2), EXPLICIT, True))]


@case("add_lrn", "other numbers later")
def lrn(sketch: Sketch) -> Expected:
    x = rand(2, 6, 3, 3)
    layer = sketch.network.add_lrn(sketch.input(x), 5, 1e-4, 0.75, 1.0)
    layer.window_size, layer.alpha, layer.beta, layer.k = 3, 0.7, 0.5, 2.0
    squares = np.pad(x**2, ((0, 0), (1, 1), (0, 0), (0, 0)))
    total = sum(squares[:, i : i + 6] for i in range(3))
    return [(layer.get_output(0), x / (2.0 + 0.7 / 3 * total) ** 0.5)]
