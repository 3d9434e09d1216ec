"""Delta debugging: the smallest part of a list that still has a property, found by trying halves, then quarters, ...

The result is minimal in the sense that no single item of it can be left out. When one item alone has the property, the
number of trials grows with the logarithm of the length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeVar

__all__ = ["minimize"]

T = TypeVar("T")


def minimize(items: Sequence[T], has_property: Callable[[list[T]], bool]) -> list[T]:
    """A minimal part of the items that has the property, in their order; the whole is taken to have it.

    Args:
        items: What to choose from.
        has_property: Asked at most once for each part; never for none of the items.

    >>> minimize(range(100), lambda part: 40 in part and 77 in part)
    [40, 77]
    """
    asked: dict[tuple[int, ...], bool] = {}

    def ask(part: tuple[int, ...]) -> bool:
        if part not in asked:
            asked[part] = has_property([items[index] for index in part])
        return asked[part]

    kept, pieces = tuple(range(len(items))), 2
    while len(kept) > 1:
        parts = _split(kept, pieces)
        smaller = next((part for part in parts if ask(part)), None)
        if smaller is not None:
            kept, pieces = smaller, 2
            continue
        rests = [_without(kept, part) for part in parts] if pieces > 2 else []
        smaller = next((rest for rest in rests if ask(rest)), None)
        if smaller is not None:
            kept, pieces = smaller, max(pieces - 1, 2)
        elif pieces < len(kept):
            pieces = min(2 * pieces, len(kept))
        else:
            break
    return [items[index] for index in kept]


def _split(items: tuple[int, ...], count: int) -> list[tuple[int, ...]]:
    bounds = [len(items) * index // count for index in range(count + 1)]
    return [items[start:end] for start, end in pairwise(bounds) if end > start]


def _without(items: tuple[int, ...], part: tuple[int, ...]) -> tuple[int, ...]:
    gone = set(part)
    return tuple(item for item in items if item not in gone)
