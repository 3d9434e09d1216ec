"""The calibration cache: the ranges of a network as JSON that people can read, checked strictly when it is loaded."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Final, Literal

import msgspec

from dovetail.decoding import decode
from dovetail.errors import BuildError

__all__ = ["MAX_CACHE_BYTES", "Range", "cache_mismatch", "decode_cache", "encode_cache"]

Range = tuple[float, float]

MAX_CACHE_BYTES: Final = 256 * 2**20
"""Millions of tensors; anything larger is not a calibration cache."""
_FORMAT: Final = "dovetail calibration"


class _Cache(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    format: Literal["dovetail calibration"]
    version: Literal[1]
    algorithm: str
    ranges: dict[str, Range | None]
    """Tensor name -> low and high; null for a tensor that no batch gave a range."""


_DECODER: Final = msgspec.json.Decoder(_Cache)


def encode_cache(algorithm: str, ranges: Mapping[str, Range | None]) -> bytes:
    """The text of a cache; equal ranges give equal bytes."""
    cache = _Cache(format=_FORMAT, version=1, algorithm=algorithm, ranges=dict(sorted(ranges.items())))
    return msgspec.json.format(msgspec.json.encode(cache), indent=1) + b"\n"


def decode_cache(text: bytes) -> tuple[str, dict[str, Range | None]]:
    """The algorithm and the ranges in a cache.

    Raises:
        BuildError: The text is damaged or of another kind.
    """
    if len(text) > MAX_CACHE_BYTES:
        raise _damaged(f"it has over {MAX_CACHE_BYTES} bytes")
    cache = decode(_DECODER, text, _damaged)
    for name, bounds in cache.ranges.items():
        if bounds is not None and not (all(map(math.isfinite, bounds)) and bounds[0] <= bounds[1]):
            raise _damaged(f"tensor '{name}' has the range {bounds}")
    return cache.algorithm, cache.ranges


def _damaged(why: str) -> BuildError:
    return BuildError(
        f"the calibration cache is damaged or was not written by Dovetail: {why}",
        fix="delete it, or return None from read_calibration_cache, to calibrate again",
    )


def cache_mismatch(algorithm: str, names: Collection[str], text: bytes) -> tuple[str | None, dict[str, Range | None]]:
    """Why a cache does not fit a network (None when it does), and its ranges.

    >>> cache_mismatch("MINMAX", ["x"], encode_cache("MINMAX", {"y": None}))[0]
    "it has no range of 'x'"
    """
    cached, ranges = decode_cache(text)
    missing = sorted(set(names) - ranges.keys())
    unknown = sorted(ranges.keys() - set(names))
    if cached != algorithm:
        return f"it was made by {cached}, and the calibrator asks for {algorithm}", ranges
    if missing:
        return f"it has no range of {_list(missing)}", ranges
    if unknown:
        return f"it is of another network: {_list(unknown)}", ranges
    return None, ranges


def _list(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(f"'{name}'" for name in names[:3]) + more
