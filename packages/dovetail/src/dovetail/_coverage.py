"""What NaN, infinities and empty results mean in a comparison: the one rule that every comparison of numbers keeps.

Elements that are NaN on both sides, or the same infinity, are alike, but nothing was measured there: they are counted,
and whoever calls the results equal says how many there are. NaN on one side only is a difference, and so are two
infinities of different sign. Where no element is finite on both sides nothing was compared, and that the sides are
alike verifies nothing. A result without elements has nothing to compare either, and is told to be empty.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["EMPTY", "Coverage", "cover", "same_specials"]

Array = npt.NDArray[Any]

EMPTY = "empty, nothing compared"


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """How much of two results could be compared."""

    size: int
    num_compared: int
    """Elements that are finite on both sides."""
    num_nan: tuple[int, int]
    """On the one side and on the other."""
    num_inf: tuple[int, int]

    @property
    def is_hollow(self) -> bool:
        """Whether there are elements and none of them could be compared."""
        return self.size > 0 and not self.num_compared

    def describe(self) -> str:
        """What was not compared, of sides that are alike; an empty text when everything was.

        >>> x = np.float32([np.nan, np.inf, 1])
        >>> cover(x, x).describe()
        '1 NaN and 1 infinite of 3 elements; 1 compared'
        """
        if not self.size:
            return EMPTY
        counts = ((max(self.num_nan), "NaN"), (max(self.num_inf), "infinite"))
        found = " and ".join(f"{count} {name}" for count, name in counts if count)
        elements = f"{self.size} element{'s' if self.size != 1 else ''}"
        if self.is_hollow:
            return f"nothing was compared: {found} of {elements}"
        return f"{found} of {elements}; {self.num_compared} compared" if found else ""


def same_specials(a: Array, b: Array) -> npt.NDArray[np.bool_]:
    """Where two arrays have both NaN, or the same infinity."""
    return np.asarray((np.isnan(a) & np.isnan(b)) | (np.isinf(a) & (a == b)), dtype=np.bool_)


def cover(a: Array, b: Array) -> Coverage:
    """How much of two arrays of floating-point numbers can be compared."""
    return Coverage(
        size=a.size,
        num_compared=int((np.isfinite(a) & np.isfinite(b)).sum()),
        num_nan=(int(np.isnan(a).sum()), int(np.isnan(b).sum())),
        num_inf=(int(np.isinf(a).sum()), int(np.isinf(b).sum())),
    )
