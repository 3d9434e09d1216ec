"""Ops that ONNX Runtime keeps in ONNX's own domain: experiments that ONNX dropped, and copies between devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from dovetail.providers.cpu._numeric import Array
from dovetail.providers.cpu.kernels._checks import fail, normalize_axes, require
from dovetail.providers.cpu.kernels._fused import parametric_softplus, scaled_tanh
from dovetail.providers.cpu.kernels._support import float_reference
from dovetail.providers.cpu.kernels.onnx.activation import thresholded_relu
from dovetail.providers.cpu.registry import kernel

__all__ = [
    "affine",
    "copy_across",
    "crop",
    "dynamic_slice",
    "parametric_softplus_1",
    "scale",
    "scale_image",
    "scaled_tanh_1",
    "thresholded_relu_1",
]

_LAST: Final = 9
"""The last opset before ONNX Runtime deprecated these ops."""
_TYPES: Final = {"T": ("float32", "float64", "float16")}


@kernel("MemcpyFromHost", since=1)
@kernel("MemcpyToHost", since=1)
def copy_across(x: Any) -> Any:
    """A copy; both sides of this one are the host."""
    return x.copy() if isinstance(x, np.ndarray) else list(x)


@kernel("Crop", since=1, until=_LAST, types=_TYPES)
def crop(x: Array, *, border: Sequence[int] = (), scale: Sequence[int] | None = None) -> Array:
    """Images without their borders, or of a given size from the left and upper border on.

    The borders are left, top, right and bottom; the size is height and width.
    """
    op = "Crop"
    require(x.ndim == 4, op, "images have four axes", got=x.shape)
    require(len(border) == 4 and min(border) >= 0, op, "'border' must be four counts", got=list(border))
    left, top, right, bottom = border
    height, width = x.shape[2:]
    lower, farther = height - bottom, width - right
    if scale is not None and len(scale):
        require(len(scale) == 2, op, "'scale' must be a height and a width", got=list(scale))
        lower, farther = top + scale[0], left + scale[1]
    fits = top <= lower <= height and left <= farther <= width
    require(fits, op, "the crop leaves the image", expected=(height, width), got=(top, left, lower, farther))
    return x[:, :, top:lower, left:farther].copy()


@kernel("ImageScaler", since=1, until=_LAST, types=_TYPES)
@float_reference
def scale_image(x: Array, *, bias: Sequence[float] = (), scale: float = 1.0) -> Array:
    """Images times a factor plus a bias a channel."""
    op = "ImageScaler"
    require(x.ndim == 4, op, "images have four axes", got=x.shape)
    require(len(bias) == x.shape[1], op, "'bias' has one value a channel", expected=x.shape[1], got=len(bias))
    return np.asarray(x * x.dtype.type(scale) + np.reshape(bias, (1, -1, 1, 1)).astype(x.dtype))


@kernel("Affine", since=1, until=_LAST, types=_TYPES)
@float_reference
def affine(x: Array, *, alpha: float = 1.0, beta: float = 0.0) -> Array:
    """``alpha`` times the input plus ``beta``."""
    return np.asarray(x.dtype.type(alpha) * x + x.dtype.type(beta))


@kernel("Scale", since=1, until=_LAST, types=_TYPES)
@float_reference
def scale(x: Array, *, scale: float = 1.0) -> Array:
    """The input times a factor."""
    return np.asarray(x * x.dtype.type(scale))


@kernel("ParametricSoftplus", since=1, until=_LAST, types=_TYPES)
@float_reference
def parametric_softplus_1(x: Array, *, alpha: float | None = None, beta: float | None = None) -> Array:
    """``alpha`` times the softplus of ``beta`` times the input."""
    return parametric_softplus(x, **_need_both("ParametricSoftplus", alpha, beta))


@kernel("ScaledTanh", since=1, until=_LAST, types=_TYPES)
@float_reference
def scaled_tanh_1(x: Array, *, alpha: float | None = None, beta: float | None = None) -> Array:
    """``alpha`` times the tanh of ``beta`` times the input."""
    return scaled_tanh(x, **_need_both("ScaledTanh", alpha, beta))


def _need_both(op: str, alpha: float | None, beta: float | None) -> dict[str, float]:
    """The schemas let a node leave them out, and give no value for that."""
    if alpha is None or beta is None:
        fail(op, "'alpha' and 'beta' are both needed", got=(alpha, beta))
    return {"alpha": alpha, "beta": beta}


@kernel("ThresholdedRelu", since=1, until=_LAST, types=_TYPES)
@float_reference
def thresholded_relu_1(x: Array, *, alpha: float = 1.0) -> Array:
    """Elements above ``alpha``, zero for the others."""
    return np.asarray(thresholded_relu(x, alpha=alpha))


@kernel("DynamicSlice", since=1, until=_LAST)
def dynamic_slice(data: Array, starts: Array, ends: Array, axes: Array | None = None) -> Array:
    """Slice before it was in ONNX with inputs; both ends are cut to the axis."""
    op = "DynamicSlice"
    chosen = range(starts.size) if axes is None else [int(axis) for axis in axes.reshape(-1)]
    fits = starts.size == ends.size == len(chosen) <= data.ndim
    require(fits, op, "'starts', 'ends' and 'axes' differ in length", got=(starts.size, ends.size, len(chosen)))
    where = [slice(None)] * data.ndim
    pairs = zip(starts.reshape(-1).tolist(), ends.reshape(-1).tolist(), strict=True)
    for axis, (start, end) in zip(normalize_axes(op, chosen, data.ndim), pairs, strict=True):
        where[axis] = slice(start, end)
    return data[tuple(where)].copy()
