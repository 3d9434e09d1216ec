"""Makers of random nodes that slide windows over images, and of quantization around them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from tests.support.random_models import Draft, NoFit, Value, may_be_empty, product

__all__ = ["IMAGE_MAKERS"]

Maker = Callable[[Draft], Any]


def _image(draft: Draft, *, bound: float = 100) -> Value:
    """Something with a batch, known channels and one or two further axes."""
    return draft.pick_float(
        bound=bound,
        fits=lambda v: v.rank in (3, 4) and isinstance(v.dims[1], int) and v.dims[1] > 0 and not may_be_empty(v),
    )


def _ensure_image(draft: Draft) -> Value:
    try:
        return _image(draft)
    except NoFit:
        x = draft.pick_float(bound=100, fits=lambda v: v.rank == 2 and isinstance(v.dims[1], int) and v.dims[1] > 0)
        if draft.opset < 11:
            raise
        return draft.add("Reshape", [x, draft.ints(0, 1, x.dims[1])], replace(x, dims=(x.dims[0], 1, x.dims[1])))


def _window(draft: Draft, x: Value) -> tuple[dict[str, Any], list[Any]]:
    """A kernel, strides and pads that fit any size, and the sizes that come out."""
    spatial = x.rank - 2
    kind = draft.rng.choice(["same", "point", "half"])
    if kind == "point":
        return {"kernel_shape": [1] * spatial}, list(x.dims[2:])
    if kind == "same":
        attrs: dict[str, Any] = {"kernel_shape": [3] * spatial}
        attrs |= {"auto_pad": "SAME_UPPER"} if draft.chance(0.3) else {"pads": [1] * (2 * spatial)}
        return attrs, list(x.dims[2:])
    sizes = [(d + 2 - 3) // 2 + 1 if isinstance(d, int) else draft.symbol() for d in x.dims[2:]]
    return {"kernel_shape": [3] * spatial, "pads": [1] * (2 * spatial), "strides": [2] * spatial}, sizes


def _out(x: Value, channels: int, sizes: list[Any], bound: float, grid: int | None) -> Value:
    return Value("", x.dtype, (x.dims[0], channels, *sizes), bound, grid)


def add_conv(draft: Draft) -> Value:
    x = _ensure_image(draft)
    channels = int(x.dims[1])
    attrs, sizes = _window(draft, x)
    groups = channels if channels > 1 and draft.chance(0.25) else 1
    width = channels if groups > 1 else draft.rng.choice([1, 2, 4])
    weight = draft.floats([width, channels // groups, *attrs["kernel_shape"]], x.dtype)
    bias = [draft.floats([width], x.dtype)] if draft.chance(0.5) else []
    grid = None if x.grid is None else x.grid + 3
    bound = x.bound * product(attrs["kernel_shape"]) * (channels // groups) + 1
    like = _out(x, width, sizes, bound, grid)
    y = draft.add("Conv", [x, weight, *bias], like, group=groups if groups > 1 else None, **attrs)
    if draft.chance(0.3):
        y = _batch_norm(draft, y)
    if draft.chance(0.4):
        y = draft.add("Relu", [y], y)
    return y


def _batch_norm(draft: Draft, x: Value) -> Value:
    channels = int(x.dims[1])
    arrays = draft.shared.arrays
    scale, bias, mean = (draft.floats([channels], x.dtype) for _ in range(3))
    variance = draft.weight((arrays.random(channels) + 0.5).astype(x.dtype))
    epsilon = {"epsilon": 0.01} if draft.chance(0.5) else {}
    return draft.add(
        "BatchNormalization", [x, scale, bias, mean, variance], replace(x, bound=2 * x.bound + 2, grid=None), **epsilon
    )


def add_batch_norm(draft: Draft) -> None:
    _batch_norm(draft, _image(draft))


def add_conv_transpose(draft: Draft) -> None:
    x = _image(draft)
    spatial, channels, width = x.rank - 2, int(x.dims[1]), draft.rng.choice([1, 2, 3])
    weight = draft.floats([channels, width, *[2] * spatial], x.dtype)
    sizes: list[Any] = [2 * d if isinstance(d, int) else draft.symbol() for d in x.dims[2:]]
    like = _out(x, width, sizes, x.bound * channels * 2, None)
    draft.add("ConvTranspose", [x, weight], like, kernel_shape=[2] * spatial, strides=[2] * spatial)


def add_pool(draft: Draft) -> None:
    x = _image(draft)
    op = draft.rng.choice(["MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"])
    if op.startswith("Global"):
        grid = x.grid if op == "GlobalMaxPool" else None
        draft.add(op, [x], replace(x, dims=(*x.dims[:2], *[1] * (x.rank - 2)), grid=grid))
        return
    attrs, sizes = _window(draft, x)
    if op == "AveragePool":
        attrs |= {"count_include_pad": 1} if draft.chance(0.3) and "auto_pad" not in attrs else {}
    elif (
        draft.opset >= 10
        and draft.chance(0.2)
        and "strides" not in attrs
        and "auto_pad" not in attrs
        and "pads" in attrs
    ):
        attrs |= {"dilations": [2] * (x.rank - 2), "pads": [2] * (2 * (x.rank - 2))}
    draft.add(op, [x], _out(x, int(x.dims[1]), sizes, x.bound, x.grid if op == "MaxPool" else None), **_legal(attrs))


def _legal(attrs: dict[str, Any]) -> dict[str, Any]:
    """ONNX wants pads below the kernel's size."""
    if "dilations" in attrs:
        attrs = {**attrs, "kernel_shape": [3] * len(attrs["dilations"])}
    return attrs


def add_instance_norm(draft: Draft) -> None:
    x = _image(draft, bound=20)
    if x.dtype != "float32":
        raise NoFit
    scale, bias = (draft.floats([int(x.dims[1])], x.dtype) for _ in range(2))
    draft.add("InstanceNormalization", [x, scale, bias], replace(x, bound=5.0, grid=None), epsilon=0.1)


def add_local_response(draft: Draft) -> None:
    x = _image(draft, bound=20)
    if x.rank != 4 or x.dtype != "float32":
        raise NoFit
    draft.add("LRN", [x], replace(x, grid=None), size=3)


def add_depth(draft: Draft) -> None:
    x = draft.pick("float32", fits=lambda v: v.rank == 4 and not may_be_empty(v))
    batch, channels, *sizes = x.dims
    if isinstance(channels, int) and channels % 4 == 0 and draft.chance(0.6):
        grown: list[Any] = [2 * d if isinstance(d, int) else draft.symbol() for d in sizes]
        mode = {"mode": "CRD"} if draft.opset >= 11 and draft.chance(0.5) else {}
        draft.add("DepthToSpace", [x], replace(x, dims=(batch, channels // 4, *grown)), blocksize=2, **mode)
    elif isinstance(channels, int) and all(isinstance(d, int) and d % 2 == 0 for d in sizes):
        shrunk = [int(d) // 2 for d in sizes]
        draft.add("SpaceToDepth", [x], replace(x, dims=(batch, channels * 4, *shrunk)), blocksize=2)


def add_resize(draft: Draft) -> None:
    if draft.opset < 13:
        raise NoFit
    x = draft.pick("float32", fits=lambda v: v.rank == 4 and not may_be_empty(v))
    mode = draft.rng.choice(["nearest", "linear"])
    sizes: list[Any] = [2 * d if isinstance(d, int) else draft.symbol() for d in x.dims[2:]]
    scales = draft.weight(np.asarray([1, 1, 2, 2], np.float32))
    attrs = {"coordinate_transformation_mode": draft.rng.choice(["asymmetric", "half_pixel", "align_corners"])}
    if mode == "nearest":
        attrs["coordinate_transformation_mode"] = "asymmetric"
        attrs["nearest_mode"] = "floor"
    like = replace(x, dims=(*x.dims[:2], *sizes), grid=x.grid if mode == "nearest" else None)
    draft.add("Resize", [x, "", scales], like, mode=mode, **attrs)


# quantization


def _scale(draft: Draft) -> Value:
    return draft.scalar(draft.rng.choice([0.5, 0.25, 0.125]), "float32")


def add_quantize(draft: Draft) -> Value:
    """Down to eight bits, and most often back."""
    if draft.opset < 10:
        raise NoFit
    x = draft.pick("float32", exact=True)
    kind = draft.rng.choice(["uint8", "int8"])
    scale, zero = _scale(draft), draft.scalar(3 if kind == "uint8" else -1, kind)
    narrow = draft.add("QuantizeLinear", [x, scale, zero], Value("", kind, x.dims))
    if draft.chance(0.75):
        y = draft.add("DequantizeLinear", [narrow, scale, zero], Value("", "float32", x.dims, 70.0, 3))
        if draft.chance(0.4):
            return draft.add("Transpose", [y], replace(y, dims=y.dims[::-1]))
        return y
    return narrow


def add_quantized_weight(draft: Draft) -> None:
    """A product with a weight that is stored in eight bits, by channel or not."""
    if draft.opset < 13:
        raise NoFit
    x = draft.pick("float32", bound=70, fits=lambda v: v.rank >= 2 and isinstance(v.dims[-1], int))
    depth = int(x.dims[-1])
    weight = draft.weight(draft.shared.arrays.integers(-8, 8, (depth, 4)).astype("int8"))
    if draft.chance(0.5):
        scale = draft.weight(np.asarray([0.5, 0.25, 0.125, 0.5], np.float32))
        zero = draft.weight(np.zeros(4, np.int8))
        attrs: dict[str, Any] = {"axis": 1}
    else:
        scale, zero, attrs = _scale(draft), draft.scalar(0, "int8"), {}
    wide = draft.add("DequantizeLinear", [weight, scale, zero], Value("", "float32", (depth, 4), 4.0, 3), **attrs)
    # Nothing that a last bit could change may follow: ONNX Runtime makes eight bits of the other side too.
    draft.add("MatMul", [x, wide], Value("", "float32", (*x.dims[:-1], 4), x.bound * 4 * max(depth, 1)))


def add_quantized_conv(draft: Draft) -> None:
    """DQ, DQ -> Conv -> Q, as a quantized model has it."""
    if draft.opset < 13:
        raise NoFit
    x = draft.pick("uint8", "int8", fits=lambda v: v.rank == 4 and isinstance(v.dims[1], int) and not may_be_empty(v))
    channels = int(x.dims[1])
    zero = draft.scalar(1, x.dtype)
    a = draft.add("DequantizeLinear", [x, _scale(draft), zero], Value("", "float32", x.dims, 128.0, 3))
    weight = draft.weight(draft.shared.arrays.integers(-4, 4, (2, channels, 3, 3)).astype("int8"))
    b = draft.add(
        "DequantizeLinear",
        [weight, _scale(draft), draft.scalar(0, "int8")],
        Value("", "float32", (2, channels, 3, 3), 2.0, 3),
    )
    y = draft.add(
        "Conv", [a, b], Value("", "float32", (x.dims[0], 2, *x.dims[2:]), 256.0 * channels * 9, 6), pads=[1, 1, 1, 1]
    )
    if y.is_exact:
        draft.add(
            "QuantizeLinear", [y, draft.scalar(4.0, "float32"), draft.scalar(0, "int8")], Value("", "int8", y.dims)
        )


def add_dynamic_quantize(draft: Draft) -> None:
    """Its scale is a quotient, so only what does not change with the last bit is used."""
    if draft.opset < 11:
        raise NoFit
    x = draft.pick("float32", exact=True, fits=lambda v: v.rank >= 1 and not may_be_empty(v))
    _, scale, _ = draft.emit("DynamicQuantizeLinear", [x], 3)
    draft.keep(Value(scale, "float32", (), 1.0))


IMAGE_MAKERS: dict[Maker, float] = {
    add_conv: 5,
    add_batch_norm: 1,
    add_conv_transpose: 1,
    add_pool: 3,
    add_instance_norm: 0.7,
    add_local_response: 0.4,
    add_depth: 0.8,
    add_resize: 1,
    add_quantize: 3,
    add_quantized_weight: 1.5,
    add_quantized_conv: 1,
    add_dynamic_quantize: 0.4,
}
