"""The convolutions of com.microsoft: with a residual and an activation, channels last, or with pads as an input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from dovetail.providers.cpu._numeric import Array
from dovetail.providers.cpu.kernels._channels import channels_first, channels_last
from dovetail.providers.cpu.kernels._checks import require
from dovetail.providers.cpu.kernels._fused import activate, parameter_names
from dovetail.providers.cpu.kernels._support import float_reference
from dovetail.providers.cpu.kernels.onnx.convolution import conv, conv_transpose
from dovetail.providers.cpu.kernels.onnx.pooling import max_pool
from dovetail.providers.cpu.registry import kernel

__all__ = ["conv_transpose_with_dynamic_pads", "fused_conv", "nhwc_conv", "nhwc_fused_conv", "nhwc_max_pool"]

_DOMAIN = "com.microsoft"
_CONV_ACTIVATIONS: Final = frozenset(("Clip", "HardSigmoid", "HardSwish", "LeakyRelu", "Relu", "Sigmoid", "Tanh"))


@kernel("FusedConv", domain=_DOMAIN, since=1, types={"T": ("float32", "float64", "float16")})
@float_reference
def fused_conv(
    x: Array,
    w: Array,
    b: Array | None = None,
    z: Array | None = None,
    *,
    activation: str | None = None,
    activation_params: Sequence[float] | None = None,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Array:
    """Conv, plus a tensor of the shape of its result, and an activation of the sum."""
    y = np.asarray(
        conv(
            x,
            w,
            b,
            auto_pad=auto_pad,
            dilations=dilations,
            group=group,
            kernel_shape=kernel_shape,
            pads=pads,
            strides=strides,
        )
    )
    return _finish("FusedConv", y, z, activation, activation_params)


def _finish(
    op: str, y: Array, z: Array | None, activation: str | None, activation_params: Sequence[float] | None
) -> Array:
    if z is not None:
        require(z.shape == y.shape, op, "'Z' differs from the result", expected=y.shape, got=z.shape)
        y = y + z
    if activation is None:
        return y
    names = parameter_names(op, activation, _CONV_ACTIVATIONS)
    values = list(activation_params or ())
    require(len(values) == len(names), op, "'activation_params' has the wrong length", expected=len(names), got=values)
    return activate(op, y, activation, dict(zip(names, values, strict=True)))


@kernel("NhwcFusedConv", domain=_DOMAIN, since=1, types={"T": ("float32", "float16")})
@float_reference
def nhwc_fused_conv(
    x: Array,
    w: Array,
    b: Array | None = None,
    z: Array | None = None,
    *,
    activation: str | None = None,
    activation_params: Sequence[float] | None = None,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Array:
    """FusedConv of images whose channels are last; the filters are as in Conv."""
    y = nhwc_conv(
        x,
        w,
        b,
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )
    return _finish("NhwcFusedConv", np.asarray(y), z, activation, activation_params)


@kernel("NhwcConv", domain=_DOMAIN, since=1, types={"T": ("float32", "float64", "float16")})
@float_reference
def nhwc_conv(
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
    """Conv of images whose channels are last; the filters are as in Conv."""
    y = conv(
        channels_first("NhwcConv", x),
        w,
        b,
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )
    return channels_last(np.asarray(y))


@kernel("NhwcMaxPool", domain=_DOMAIN, since=1, types={"T": ("int8", "uint8")})
def nhwc_max_pool(
    x: Array,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Sequence[int] | None = None,
    kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Array:
    """The largest byte of each window of images whose channels are last."""
    y = max_pool(
        channels_first("NhwcMaxPool", x),
        auto_pad=auto_pad,
        ceil_mode=ceil_mode,
        dilations=dilations,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )
    return channels_last(np.asarray(y))


@kernel("ConvTransposeWithDynamicPads", domain=_DOMAIN, since=1, types={"T": ("float32", "float64", "float16")})
@float_reference
def conv_transpose_with_dynamic_pads(
    x: Array,
    w: Array,
    pads: Array | None = None,
    b: Array | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    output_padding: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Array:
    """ConvTranspose whose pads are a tensor."""
    amounts = None if pads is None else [int(n) for n in pads.reshape(-1)]
    y = conv_transpose(
        x,
        w,
        b,
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        output_padding=output_padding,
        pads=amounts,
        strides=strides,
    )
    return np.asarray(y)
