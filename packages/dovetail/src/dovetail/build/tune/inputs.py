"""Numbers to tune with: the same in every build, around one, and in range of nearly everything that reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["draw_array", "draw_integers", "draw_numbers", "make_generator"]

_SEED: Final = 20240607


def make_generator(index: int) -> np.random.Generator:
    """The generator of an input, by its position."""
    return np.random.default_rng(_SEED + index)


def draw_numbers(rng: np.random.Generator, shape: Sequence[int]) -> npt.NDArray[Any]:
    """Numbers between -1 and 1."""
    return rng.uniform(-1.0, 1.0, shape).astype(np.float32)


def draw_integers(rng: np.random.Generator, shape: Sequence[int], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Zeros and ones: integers may be indices, and these are in range of nearly everything."""
    return rng.integers(0, 2, shape).astype(dtype)


def draw_array(index: int, shape: Sequence[int], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """An input of a network, by its position.

    >>> draw_array(0, (2,), "int32").dtype.name, draw_array(1, (2, 3), "float16").shape
    ('int32', (2, 3))
    """
    rng, kind = make_generator(index), np.dtype(dtype).kind
    if kind in "iub":
        return draw_integers(rng, shape, dtype)
    return draw_numbers(rng, shape).astype(dtype)
