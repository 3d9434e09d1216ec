"""How far right ways of one region may differ because of narrow types inside of it.

What a way stores may be as wide as float32 and still have been bfloat16 or quantized on the way: where two ways differ
by their last bits before that, they differ by a step of the narrow type after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dovetail_cuda.graph.regions import Region, Stored
from dovetail_cuda.lower.expr import Convert

__all__ = ["find_rounding"]

_ALLOWED: Final = {"float16": 2e-2, "bfloat16": 5e-2, "int8": 2 / 127, "uint8": 2 / 127}
"""Relative to the largest result; two steps of a quantized type, as the core allows for types that it sees."""
_WIDE: Final = frozenset(("float32", "float64"))


def find_rounding(region: Region) -> float:
    """What the ways of a region may differ by, relative to the largest result; 0 where nothing is narrow."""
    return max((_ALLOWED.get(dtype, 0.0) for dtype in _list_narrow(region)), default=0.0)


def _list_narrow(region: Region) -> Iterator[str]:
    """The types that wide values are rounded to, and the one that is multiplied in."""
    yield getattr(region, "dtype", "")
    for stored in _list_stored(region):
        for part in stored.parts:
            if isinstance(part, Convert) and part.arg.dtype in _WIDE:
                yield part.dtype
    for step in getattr(region, "steps", ()):
        yield from _list_narrow(step)


def _list_stored(region: Region) -> tuple[Stored, ...]:
    found: Stored | tuple[Stored, ...] = getattr(region, "stored", ())
    return found if isinstance(found, tuple) else (found,)
