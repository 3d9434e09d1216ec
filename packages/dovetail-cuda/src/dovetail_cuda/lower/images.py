"""Images in memory: what a convolution reads where it lies, because its strides are even."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dovetail_cuda.lower.expr import Load
from dovetail_cuda.lower.index import Index, Var
from dovetail_cuda.lower.indexing import transpose_to
from dovetail_cuda.lower.sizes import least
from dovetail_cuda.lower.tensors import Tensor, refuse

__all__ = ["NHWC_DOMAIN", "Image", "find_image", "find_strides", "turn_first"]

NHWC_DOMAIN: Final = "com.ms.internal.nhwc"
"""Operators whose images have their channels last."""

_FEW_CHANNELS: Final = 4
"""Up to so many channels a window is read element by element anyway."""


@dataclass(frozen=True, kw_only=True)
class Image:
    """A batch of images in a buffer: elements from one to the next along each dimension."""

    buffer: str
    offset: int
    strides: tuple[int, int, int, int]
    """Of images, channels, lines and pixels."""


def find_strides(tensor: Tensor) -> tuple[str, int, tuple[int, ...]] | None:
    """The buffer of a tensor, the elements before its first, and its strides; None where they are not even."""
    element = tensor.at([Index.variable(f"d{axis}", size) for axis, size in enumerate(tensor.shape)])
    if not isinstance(element, Load) or element.guard is not None or least(element.index.constant) < 0:
        return None
    factors = {atom.name: factor for atom, factor in element.index.terms if isinstance(atom, Var)}
    if len(factors) < len(element.index.terms) or any(least(factor) < 0 for factor in factors.values()):
        return None
    return element.buffer, element.index.constant, tuple(factors.get(f"d{axis}", 0) for axis in range(tensor.rank))


def find_image(tensor: Tensor) -> Image | None:
    """How images lie; None where a convolution would read them badly."""
    found = find_strides(tensor)
    if found is None or tensor.rank != 4:
        return None
    buffer, offset, (image, channel, line, pixel) = found
    if tensor.shape[1] > _FEW_CHANNELS and channel != 1:
        return None
    return Image(buffer=buffer, offset=offset, strides=(image, channel, line, pixel))


def turn_first(tensor: Tensor) -> Tensor:
    """Images whose channels are the last dimension, seen with the channels after the images."""
    if tensor.rank < 2:
        raise refuse(f"images with their channels last have two dimensions or more, not {tensor.rank}")
    return transpose_to(tensor, (0, tensor.rank - 1, *range(1, tensor.rank - 1)))
