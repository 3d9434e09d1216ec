"""Moving the channels of an image between the second axis and the last, for kernels of both layouts."""

from __future__ import annotations

import numpy as np

from dovetail.providers.cpu._numeric import Array
from dovetail.providers.cpu.kernels._checks import require

__all__ = ["channels_first", "channels_last"]


def channels_first(op: str, x: Array) -> Array:
    """(batch, *spatial, channel) as (batch, channel, *spatial), contiguous so that sums run in the same order.

    >>> channels_first("Conv", np.zeros((1, 5, 6, 3))).shape
    (1, 3, 5, 6)
    """
    require(x.ndim >= 2, op, "an image has a batch and a channel axis", got=x.shape)
    return np.ascontiguousarray(np.moveaxis(x, -1, 1))


def channels_last(x: Array) -> Array:
    """(batch, channel, *spatial) as (batch, *spatial, channel), in memory of its own.

    >>> channels_last(np.zeros((1, 3, 5, 6))).shape
    (1, 5, 6, 3)
    """
    return np.ascontiguousarray(np.moveaxis(x, 1, -1))
