"""Closing several things although one of them fails: nothing else stays open because of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

__all__ = ["close_all"]


def close_all(closers: Iterable[Callable[[], object]]) -> None:
    """Call every function, and raise the first error when all were called.

    >>> closed = []
    >>> try:
    ...     close_all([lambda: 1 // 0, lambda: closed.append("second")])
    ... except ZeroDivisionError:
    ...     print(closed)
    ['second']
    """
    first: Exception | None = None
    for close in closers:
        try:
            close()
        except Exception as error:  # noqa: BLE001 - the first one is raised below
            first = first or error
    if first is not None:
        raise first
