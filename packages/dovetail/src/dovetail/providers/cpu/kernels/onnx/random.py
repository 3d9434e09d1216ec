"""Random tensors and dropout: the same seed gives the same values, no seed gives fresh ones each run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dovetail.errors import ModelError
from dovetail.providers.cpu._numeric import FLOATS, Array
from dovetail.providers.cpu.kernels._checks import read_scalar, require, require_room
from dovetail.providers.cpu.kernels._conversion import convert, dtype_of
from dovetail.providers.cpu.kernels._support import FLOAT8, IEEE_FLOATS, reference, widen
from dovetail.providers.cpu.registry import kernel

__all__ = [
    "bernoulli",
    "drop",
    "drop_nothing",
    "drop_nothing_masked",
    "make_generator",
    "multinomial",
    "random_normal",
    "random_normal_like",
    "random_uniform",
    "random_uniform_like",
]

_FLOAT = 1


def make_generator(seed: float | None) -> np.random.Generator:
    """A generator for a seed attribute, which is a float in ONNX: its bits are the seed.

    >>> bool(make_generator(2.5).integers(100) == make_generator(2.5).integers(100))
    True
    """
    bits = None if seed is None else int(np.asarray(seed, dtype=np.float32).view(np.uint32))
    return np.random.default_rng(bits)


def _check_shape(op: str, shape: Sequence[int]) -> None:
    require(min(shape, default=0) >= 0, op, "'shape' must not be negative", got=tuple(shape))
    require_room(op, shape, np.dtype(np.float64))


def _uniform(shape: Sequence[int], dtype: np.dtype[Any], low: float, high: float, seed: float | None) -> Array:
    _check_shape("RandomUniform", shape)
    drawn = np.asarray(make_generator(seed).uniform(low, high, tuple(shape))).astype(dtype)
    # Rounding to the type may reach the upper bound, which is outside.
    top = np.asarray(high).astype(dtype)
    return np.where(drawn < top, drawn, np.nextafter(top, np.asarray(low).astype(dtype)))


def _normal(shape: Sequence[int], dtype: np.dtype[Any], mean: float, scale: float, seed: float | None) -> Array:
    _check_shape("RandomNormal", shape)
    return np.asarray(make_generator(seed).normal(mean, scale, tuple(shape))).astype(dtype)


@kernel("RandomUniform", since=1, types={"T": FLOATS})
@reference
def random_uniform(
    *, shape: Sequence[int], dtype: int = _FLOAT, low: float = 0.0, high: float = 1.0, seed: float | None = None
) -> Array:
    """Values spread evenly from ``low`` to ``high``."""
    return _uniform(shape, dtype_of(dtype), low, high, seed)


@kernel("RandomUniformLike", since=1, types={"T2": FLOATS})
@reference
def random_uniform_like(
    x: Array, *, dtype: int | None = None, low: float = 0.0, high: float = 1.0, seed: float | None = None
) -> Array:
    """``random_uniform`` with the shape, and unless told otherwise the type, of a tensor."""
    return _uniform(x.shape, _dtype_like(x, dtype), low, high, seed)


@kernel("RandomNormal", since=1, types={"T": FLOATS})
@reference
def random_normal(
    *, shape: Sequence[int], dtype: int = _FLOAT, mean: float = 0.0, scale: float = 1.0, seed: float | None = None
) -> Array:
    """Values of a normal distribution."""
    return _normal(shape, dtype_of(dtype), mean, scale, seed)


@kernel("RandomNormalLike", since=1, types={"T2": FLOATS})
@reference
def random_normal_like(
    x: Array, *, dtype: int | None = None, mean: float = 0.0, scale: float = 1.0, seed: float | None = None
) -> Array:
    """``random_normal`` with the shape, and unless told otherwise the type, of a tensor."""
    return _normal(x.shape, _dtype_like(x, dtype), mean, scale, seed)


def _dtype_like(x: Array, dtype: int | None) -> np.dtype[Any]:
    chosen = x.dtype if dtype is None else dtype_of(dtype)
    if chosen.name not in FLOATS:
        raise ModelError("random values need a float type", expected=", ".join(FLOATS), got=chosen.name)
    return chosen


@kernel("Bernoulli", since=15, types={"T1": FLOATS})
@reference
def bernoulli(x: Array, *, dtype: int | None = None, seed: float | None = None) -> Array:
    """One with the probability that each element names, zero otherwise."""
    drawn = np.asarray(make_generator(seed).uniform(size=x.shape) < x.astype(np.float64))
    return convert(drawn, x.dtype if dtype is None else dtype_of(dtype))


@kernel("Multinomial", since=7, types={"T1": FLOATS, "T2": ("int32", "int64")})
@reference
def multinomial(x: Array, *, dtype: int = 6, sample_size: int = 1, seed: float | None = None) -> Array:
    """Class indices drawn for each row of unnormalised log-probabilities.

    The largest of log-probability plus Gumbel noise is a draw from the distribution, without normalising it.
    """
    require(x.ndim == 2 and x.shape[1] > 0, "Multinomial", "the input is no batch of classes", got=x.shape)
    require(sample_size >= 0, "Multinomial", "'sample_size' must not be negative", got=sample_size)
    require_room("Multinomial", (*x.shape, sample_size), np.dtype(np.float64))
    noise = make_generator(seed).gumbel(size=(x.shape[0], sample_size, x.shape[1]))
    return np.asarray(np.argmax(x.astype(np.float64)[:, None, :] + noise, axis=2).astype(dtype_of(dtype)))


@kernel("Dropout", since=7, until=9, types={"T": IEEE_FLOATS})
@reference
def drop_nothing(x: Array, *, ratio: float = 0.5, num_outputs: int = 1) -> tuple[Array, ...]:
    """Dropout of older opsets, which only infers: no mask is drawn, and its place is zero, as in ONNX Runtime."""
    return (x.copy(), np.zeros(x.shape, dtype=x.dtype))[:num_outputs]


@kernel("Dropout", since=10, until=11, types={"T": IEEE_FLOATS})
@reference
def drop_nothing_masked(x: Array, *, ratio: float = 0.5, num_outputs: int = 1) -> tuple[Array, ...]:
    """The same with truth values for a mask."""
    return (x.copy(), np.zeros(x.shape, dtype=np.bool_))[:num_outputs]


@kernel("Dropout", since=12, types={"T": FLOATS + FLOAT8, "T1": FLOATS + FLOAT8, "T2": ("bool",)})
@reference
def drop(
    x: Array,
    ratio: Array | None = None,
    training_mode: Array | None = None,
    *,
    seed: int | None = None,
    num_outputs: int = 1,
) -> tuple[Array, ...]:
    """A copy when inferring; in training mode elements are zeroed at random and the others scaled up."""
    rate = 0.5 if ratio is None else float(read_scalar("Dropout", "ratio", ratio))
    is_training = training_mode is not None and bool(read_scalar("Dropout", "training_mode", training_mode))
    if not is_training or rate == 0:
        return (x.copy(), np.ones(x.shape, dtype=np.bool_))[:num_outputs]
    require(0 < rate < 1, "Dropout", "the ratio is out of range", expected="0 <= ratio < 1", got=rate)
    bits = None if seed is None else seed % 2**32
    # The legacy generator: ONNX's own examples draw their masks with it, so a seed gives the masks that they print.
    mask = np.asarray(np.random.RandomState(bits).uniform(size=x.shape) >= rate)
    return ((widen(x) * mask / (1 - rate)).astype(x.dtype), mask)[:num_outputs]
