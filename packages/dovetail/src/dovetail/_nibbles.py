"""Four-bit elements packed two a byte, without any element type: the codes that types and formats give a meaning."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["split_nibbles"]


def split_nibbles(packed: npt.NDArray[Any], count: int) -> npt.NDArray[np.uint8]:
    """Return the first ``count`` four-bit codes of bytes, one a byte; the first of two is in the low half.

    >>> split_nibbles(np.array([0xF1, 0x07], np.uint8), 3).tolist()
    [1, 15, 7]
    """
    codes = np.empty(packed.size * 2, np.uint8)
    np.bitwise_and(packed, 0x0F, out=codes[::2])
    np.right_shift(packed, 4, out=codes[1::2])
    return codes[:count]
