"""The error function over arrays, in float64, from two classical expansions.

Up to ``_SPLIT`` the series ``erf(x) = 2/sqrt(pi) * x * exp(-x*x) * sum((2*x*x)**n / (1*3*...*(2n+1)))`` is used: all
its terms are positive, so nothing cancels and small arguments keep their relative precision. Above, the continued
fraction of the complement converges quickly. The counts of terms make both exact to about 1e-15.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from dovetail.providers.cpu._numeric import Array

__all__ = ["erf"]

_SPLIT: Final = 2.0
_SERIES_TERMS: Final = 38
_FRACTION_TERMS: Final = 40
_ONE_FROM: Final = 6.0
"""From here on the complement is below half a step of float64 at one."""


def erf(x: Array) -> Array:
    """The error function of each element, computed in float64 and returned in the dtype of the input.

    >>> erf(np.array([-np.inf, 0.0, np.inf]))
    array([-1.,  0.,  1.])
    """
    flat = x.astype(np.float64).reshape(-1)
    magnitude = np.abs(flat)
    result = np.ones_like(magnitude)
    is_small = magnitude < _SPLIT
    is_middle = (magnitude >= _SPLIT) & (magnitude < _ONE_FROM)
    result[is_small] = _series(magnitude[is_small])
    result[is_middle] = 1.0 - _complement(magnitude[is_middle])
    result[np.isnan(magnitude)] = np.nan
    return np.copysign(result, flat).reshape(x.shape).astype(x.dtype)


def _series(x: Array) -> Array:
    square = 2.0 * x * x
    total = np.ones_like(x)
    for n in range(_SERIES_TERMS, 0, -1):
        total *= square / (2 * n + 1)
        total += 1.0
    return np.asarray(2.0 / math.sqrt(math.pi) * x * np.exp(-x * x) * total)


def _complement(x: Array) -> Array:
    fraction = x.copy()
    for n in range(_FRACTION_TERMS, 0, -1):
        fraction = x + (n / 2) / fraction
    return np.asarray(np.exp(-x * x) / (math.sqrt(math.pi) * fraction))
