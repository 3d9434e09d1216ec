"""The normalisations that ONNX Runtime adds: with residuals, without a mean, over groups, and of summed embeddings.

Sums and statistics are computed in float32 at least, and each output is rounded once.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from dovetail.providers.cpu._numeric import FLOATS, Array
from dovetail.providers.cpu.kernels._channels import channels_first, channels_last
from dovetail.providers.cpu.kernels._checks import normalize_axis, require, wrap_indices
from dovetail.providers.cpu.kernels._conversion import dtype_of
from dovetail.providers.cpu.kernels._support import reference, widen
from dovetail.providers.cpu.kernels.onnx.activation import sigmoid
from dovetail.providers.cpu.kernels.onnx.normalization import normalize_layer, standardize
from dovetail.providers.cpu.registry import kernel

__all__ = [
    "normalize_embedding",
    "normalize_groups",
    "normalize_layer_before_17",
    "normalize_simplified_layer",
    "normalize_skip_groups",
    "normalize_skip_layer",
    "normalize_skip_simplified_layer",
]

_DOMAIN: Final = "com.microsoft"
_NARROW: Final = ("float32", "float16", "bfloat16")
_IMAGES: Final = ("float32", "float16")


@kernel("LayerNormalization", since=1, until=16, types={"T": FLOATS, "U": ("float32", "float64"), "V": FLOATS})
def normalize_layer_before_17(
    x: Array,
    scale: Array,
    bias: Array | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
    num_outputs: int = 1,
) -> tuple[Array, ...]:
    """LayerNormalization as ONNX Runtime had it before ONNX did."""
    outputs: tuple[Array, ...] = normalize_layer(
        x, scale, bias, axis=axis, epsilon=epsilon, stash_type=stash_type, num_outputs=num_outputs
    )
    return outputs


@kernel("SimplifiedLayerNormalization", since=1, types={"T": FLOATS, "U": ("float32", "float64"), "V": FLOATS})
@reference
def normalize_simplified_layer(
    x: Array, scale: Array, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1, num_outputs: int = 1
) -> tuple[Array, ...]:
    """Division by the root of the mean square over the axes from ``axis`` on; also the inverse of that root."""
    first = normalize_axis("SimplifiedLayerNormalization", axis, x.ndim)
    normal, inverse = _divide_by_root(widen(x), tuple(range(first, x.ndim)), epsilon)
    y = (normal * widen(scale)).astype(scale.dtype)
    return (y, inverse.astype(dtype_of(stash_type)))[:num_outputs]


def _divide_by_root(x: Array, axes: tuple[int, ...], epsilon: float) -> tuple[Array, Array]:
    inverse = 1 / np.sqrt(np.mean(np.square(x), axis=axes, keepdims=True) + epsilon)
    return x * inverse, np.asarray(inverse)


@kernel("SkipLayerNormalization", domain=_DOMAIN, since=1, types={"T": _NARROW})
@reference
def normalize_skip_layer(
    x: Array,
    skip: Array,
    gamma: Array,
    beta: Array | None = None,
    bias: Array | None = None,
    *,
    epsilon: float = 1e-12,
    num_outputs: int = 1,
) -> tuple[Array, ...]:
    """Layer normalisation of the input plus a residual plus an optional bias; also the statistics and the sum."""
    op = "SkipLayerNormalization"
    total = _add_skip(op, x, skip, bias)
    _check_vectors(op, x, gamma=gamma, beta=beta)
    normal, mean, inverse = standardize(total, (x.ndim - 1,), epsilon)
    y = normal * widen(gamma) if beta is None else normal * widen(gamma) + widen(beta)
    parts = (y.astype(x.dtype), mean.astype(np.float32), inverse.astype(np.float32), total.astype(x.dtype))
    return parts[:num_outputs]


@kernel("SkipSimplifiedLayerNormalization", domain=_DOMAIN, since=1, types={"T": _NARROW})
@reference
def normalize_skip_simplified_layer(
    x: Array,
    skip: Array,
    gamma: Array,
    bias: Array | None = None,
    *,
    epsilon: float = 1e-12,
    num_outputs: int = 1,
) -> tuple[Array, ...]:
    """The input plus a residual plus an optional bias, divided by the root of its mean square; the mean is zero."""
    op = "SkipSimplifiedLayerNormalization"
    total = _add_skip(op, x, skip, bias)
    _check_vectors(op, x, gamma=gamma)
    normal, inverse = _divide_by_root(total, (x.ndim - 1,), epsilon)
    mean = np.zeros(inverse.shape, dtype=np.float32)
    y = (normal * widen(gamma)).astype(x.dtype)
    return (y, mean, inverse.astype(np.float32), total.astype(x.dtype))[:num_outputs]


def _add_skip(op: str, x: Array, skip: Array, bias: Array | None) -> Array:
    """The residual has the shape of the input, or lacks its batch axis, or has one batch for all."""
    require(x.ndim in (2, 3), op, "the input must have two or three axes", got=x.shape)
    fits = skip.shape == x.shape or (x.ndim == 3 and skip.shape in (x.shape[1:], (1, *x.shape[1:])))
    require(fits, op, "'skip' does not fit the input", expected=x.shape, got=skip.shape)
    total = widen(x) + widen(skip)
    if bias is None:
        return total
    _check_vectors(op, x, bias=bias)
    return total + widen(bias)


def _check_vectors(op: str, x: Array, **vectors: Array | None) -> None:
    for name, vector in vectors.items():
        fits = vector is None or vector.shape == x.shape[-1:]
        require(fits, op, f"'{name}' must be as long as the last axis", expected=x.shape[-1:])


@kernel("GroupNorm", domain=_DOMAIN, since=1, types={"T": _IMAGES, "M": _IMAGES})
@reference
def normalize_groups(
    x: Array, gamma: Array, beta: Array, *, activation: int, channels_last: int = 1, epsilon: float = 1e-5, groups: int
) -> Array:
    """Normalisation of groups of channels, then SiLU when ``activation`` is 1."""
    op = "GroupNorm"
    return _normalize_groups(op, widen(x), gamma, beta, bool(channels_last), activation, epsilon, groups).astype(
        x.dtype
    )


@kernel("SkipGroupNorm", domain=_DOMAIN, since=1, types={"T": _IMAGES, "M": _IMAGES})
@reference
def normalize_skip_groups(
    x: Array,
    gamma: Array,
    beta: Array,
    skip: Array,
    bias: Array | None = None,
    *,
    activation: int,
    channels_last: int = 1,
    epsilon: float = 1e-5,
    groups: int,
    num_outputs: int = 1,
) -> tuple[Array, ...]:
    """GroupNorm of the input plus a residual plus an optional bias; also the sum."""
    op = "SkipGroupNorm"
    last = bool(channels_last)
    channels = x.shape[-1 if last else 1]
    place = (1, 1, 1, channels) if last else (1, channels, 1, 1)
    per_image = (x.shape[0], *place[1:])
    fits = skip.shape in (x.shape, per_image, (x.shape[0], channels))
    require(fits, op, "'skip' does not fit the input", expected=x.shape, got=skip.shape)
    total = widen(x) + widen(skip if skip.ndim == 4 else skip.reshape(per_image))
    if bias is not None:
        require(bias.shape == (channels,), op, "'bias' has one value a channel", expected=(channels,), got=bias.shape)
        total = total + widen(bias).reshape(place)
    y = _normalize_groups(op, total, gamma, beta, last, activation, epsilon, groups)
    return (y.astype(x.dtype), total.astype(x.dtype))[:num_outputs]


def _normalize_groups(
    op: str, x: Array, gamma: Array, beta: Array, last: bool, activation: int, epsilon: float, groups: int
) -> Array:
    require(x.ndim == 4, op, "images have four axes", got=x.shape)
    require(activation in (0, 1), op, "'activation' is unknown", expected="0 or 1", got=activation)
    images = channels_first(op, x) if last else x
    count = images.shape[1]
    require(groups > 0 and count % groups == 0, op, f"{count} channels do not divide into {groups} 'groups'")
    for name, vector in (("gamma", gamma), ("beta", beta)):
        require(vector.shape == (count,), op, f"'{name}' has one value a channel", expected=(count,), got=vector.shape)
    grouped = images.reshape(images.shape[0], groups, count // groups, math.prod(images.shape[2:]))
    normal = standardize(grouped, (2, 3), epsilon)[0].reshape(images.shape)
    y = normal * widen(gamma).reshape(1, -1, 1, 1) + widen(beta).reshape(1, -1, 1, 1)
    active = y * sigmoid(y) if activation else y
    return channels_last(active) if last else np.asarray(active)


@kernel("EmbedLayerNormalization", domain=_DOMAIN, since=1, types={"T": _IMAGES, "T1": ("int32",)})
@reference
def normalize_embedding(
    input_ids: Array,
    segment_ids: Array | None,
    word_embedding: Array,
    position_embedding: Array,
    segment_embedding: Array | None,
    gamma: Array,
    beta: Array,
    mask: Array | None = None,
    position_ids: Array | None = None,
    *,
    epsilon: float = 1e-12,
    mask_index_type: int | None = None,
    num_outputs: int = 1,
) -> tuple[Array, ...]:
    """Layer normalisation of the sum of word, position and segment embeddings.

    The second output counts the words of each sample that the mask keeps; ``mask_index_type`` says only what shape
    inference expects there.
    """
    op = "EmbedLayerNormalization"
    require(input_ids.ndim == 2, op, "'input_ids' must be (batch, length)", got=input_ids.shape)
    paired = (segment_ids is None) == (segment_embedding is None)
    require(paired, op, "'segment_ids' and 'segment_embedding' come together")
    total = _look_up(op, "word_embedding", word_embedding, input_ids) + _look_up(
        op, "position_embedding", position_embedding, _positions(op, input_ids, position_ids)
    )
    if segment_ids is not None and segment_embedding is not None:
        require(segment_ids.shape == input_ids.shape, op, "'segment_ids' has the wrong shape", got=segment_ids.shape)
        total = total + _look_up(op, "segment_embedding", segment_embedding, segment_ids)
    _check_vectors(op, total, gamma=gamma, beta=beta)
    y = standardize(total, (2,), epsilon)[0] * widen(gamma) + widen(beta)
    kind = word_embedding.dtype
    return (y.astype(kind), _count_words(op, input_ids, mask), total.astype(kind))[:num_outputs]


def _look_up(op: str, name: str, table: Array, ids: Array) -> Array:
    require(table.ndim == 2, op, f"'{name}' must be a matrix", got=table.shape)
    return widen(table[wrap_indices(op, ids, table.shape[0], lowest=0)])


def _positions(op: str, input_ids: Array, position_ids: Array | None) -> Array:
    if position_ids is None:
        return np.broadcast_to(np.arange(input_ids.shape[1]), input_ids.shape)
    fits = position_ids.shape in (input_ids.shape, (1, input_ids.shape[1]))
    require(fits, op, "'position_ids' has the wrong shape", expected=input_ids.shape, got=position_ids.shape)
    return np.broadcast_to(position_ids, input_ids.shape)


def _count_words(op: str, input_ids: Array, mask: Array | None) -> Array:
    if mask is None:
        return np.zeros(input_ids.shape[0], dtype=np.int32)
    require(mask.shape == input_ids.shape, op, "'mask' has the wrong shape", expected=input_ids.shape, got=mask.shape)
    return np.asarray(np.sum(mask == 1, axis=1)).astype(np.int32)
