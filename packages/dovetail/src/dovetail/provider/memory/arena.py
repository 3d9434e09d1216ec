"""Placing values in one block of memory: pure planning, shared by the builder and by engines without a profile.

Two values may share bytes when no step needs both. Placement is greedy by size, which is within a few percent of
the best on real networks and always gives the same result for the same input.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from dovetail.errors import ResourceError

__all__ = ["ALIGNMENT_BYTES", "Span", "align", "aligned_empty", "plan_offsets"]

ALIGNMENT_BYTES: Final = 256
"""Every value starts at a multiple of this: the alignment device allocators give, so plugins may rely on it."""


@dataclass(frozen=True)
class Span:
    """How large a value is, and the first and last step that touches it."""

    size_bytes: int
    first: int
    last: int


def align(size_bytes: int) -> int:
    """Round up to the arena's alignment.

    >>> align(1), align(256), align(0)
    (256, 256, 0)
    """
    return -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def plan_offsets(spans: Sequence[Span]) -> tuple[list[int], int]:
    """An offset for each span, and the size of the whole.

    >>> plan_offsets([Span(100, 0, 1), Span(300, 1, 2), Span(50, 2, 3)])
    ([512, 0, 512], 768)
    """
    offsets = [0] * len(spans)
    placed = _Placed(max((span.last for span in spans), default=0))
    total = 0
    for index in sorted(range(len(spans)), key=lambda i: (-spans[i].size_bytes, i)):
        span = spans[index]
        size = max(align(span.size_bytes), ALIGNMENT_BYTES)
        offset = offsets[index] = _first_gap(size, sorted(placed.overlapping(span)))
        placed.add(span, (offset, size))
        total = max(total, offset + size)
    return offsets, total


class _Placed:
    """What was placed, so that what lives at the same time as another value is found without looking at all.

    A value overlaps another in time when it starts during the other's life, or lives when the other starts. The first
    kind are neighbours in a sorted list. The second kind are kept in a tree over the steps: each life is cut into few
    ranges of a power of two steps, and a step asks the ranges that it is in.
    """

    def __init__(self, last: int) -> None:
        self._width = 1 << max(last, 1).bit_length()
        self._starts: list[tuple[int, int, int]] = []
        self._ranges: dict[int, list[tuple[int, int]]] = {}

    def add(self, span: Span, place: tuple[int, int]) -> None:
        """Remember the place of a value: offset and size."""
        bisect.insort(self._starts, (span.first, *place))
        low, high = span.first + self._width, span.last + 1 + self._width
        while low < high:
            if low & 1:
                self._ranges.setdefault(low, []).append(place)
                low += 1
            if high & 1:
                high -= 1
                self._ranges.setdefault(high, []).append(place)
            low, high = low >> 1, high >> 1

    def overlapping(self, span: Span) -> list[tuple[int, int]]:
        """The places of everything that lives at the same time."""
        after = bisect.bisect_left(self._starts, (span.first + 1,))
        until = bisect.bisect_left(self._starts, (span.last + 1,))
        found = [(offset, size) for _, offset, size in self._starts[after:until]]
        node = span.first + self._width
        while node:
            found += self._ranges.get(node, ())
            node >>= 1
        return found


def _first_gap(size: int, taken: list[tuple[int, int]]) -> int:
    offset = 0
    for start, length in taken:
        if offset + size <= start:
            break
        offset = max(offset, start + length)
    return offset


def aligned_empty(size_bytes: int, alignment: int = ALIGNMENT_BYTES) -> npt.NDArray[Any]:
    """Uninitialised bytes whose address is a multiple of the alignment.

    Raises:
        ResourceError: There is not so much memory.
    """
    try:
        block = np.empty(size_bytes + alignment, np.uint8)
    except (MemoryError, ValueError) as error:
        raise ResourceError(
            "out of memory", got=f"{size_bytes} bytes", fix="free memory, or use smaller shapes"
        ) from error
    start = -block.__array_interface__["data"][0] % alignment
    return block[start : start + size_bytes]
