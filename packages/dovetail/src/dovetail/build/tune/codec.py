"""How timings are written: a strict JSON document for a whole cache, and one JSON line for one entry of a journal.

Readers take nothing on trust: size, nesting, types, ranges and unknown fields are checked, and every fault is a
TimingCacheError that says what is wrong. Equal caches give equal bytes.
"""

from __future__ import annotations

import math
from typing import Any, Final

import msgspec

from dovetail.decoding import decode
from dovetail.errors import TimingCacheError

__all__ = [
    "FORMAT_VERSION",
    "MAX_BYTES",
    "STATUSES",
    "TimingDocument",
    "TimingValue",
    "check_value",
    "decode_document",
    "decode_lines",
    "encode_document",
    "encode_line",
]

FORMAT_VERSION: Final = 1
MAX_BYTES: Final = 256 * 2**20
"""More than a million entries; anything larger is not a timing cache."""
STATUSES: Final = ("timed", "failed", "timeout", "wrong", "refused")

_FIX: Final = "delete the file, or let a build make a new one"


class TimingValue(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What is known of one timing.

    Failures are kept too, so that a second build need not run into them again.
    """

    time_us: float | None = None
    """Median microseconds; there need be none when the status is not "timed"."""
    status: str = "timed"
    """"timed", "failed", "timeout", "wrong" or "refused"."""
    reason: str | None = None
    low_us: float | None = None
    """The 95% interval of the median; none in caches of before, and where nothing was timed."""
    high_us: float | None = None
    rounds: int = 0
    """How many bursts were timed."""


class TimingDocument(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A whole cache as it lies in a file."""

    format_version: int
    device: str
    """Fingerprint of the device; empty when no one has said."""
    version: str
    """The Dovetail version that timed."""
    entries: dict[str, TimingValue]


class _Version(msgspec.Struct):
    format_version: int


_DOCUMENT: Final = msgspec.json.Decoder(TimingDocument)
_VERSION: Final = msgspec.json.Decoder(_Version)
_LINE: Final = msgspec.json.Decoder(tuple[str, TimingValue])


def check_value(value: TimingValue) -> str | None:
    """Why a value cannot be kept, or None."""
    if value.status not in STATUSES:
        return f"unknown status {value.status!r:.40}"
    if value.rounds < 0:
        return f"{value.rounds} rounds"
    if value.time_us is None and value.status == "timed":
        return 'status "timed" without a time'
    times = [time for time in (value.time_us, value.low_us, value.high_us) if time is not None]
    return next((f"{time} is no time" for time in times if not (math.isfinite(time) and time >= 0)), None)


def encode_document(document: TimingDocument) -> bytes:
    """The file's bytes."""
    return msgspec.json.format(msgspec.json.encode(document, order="deterministic"), indent=1) + b"\n"


def decode_document(data: bytes) -> TimingDocument:
    """Read a cache, or raise a TimingCacheError."""
    if len(data) > MAX_BYTES:
        raise TimingCacheError(f"not a timing cache: {len(data)} bytes", expected=f"at most {MAX_BYTES}", fix=_FIX)
    version = _decode(_VERSION, data).format_version
    if version != FORMAT_VERSION:
        raise TimingCacheError(
            "the timing cache has another format version", expected=FORMAT_VERSION, got=version, fix=_FIX
        )
    document: TimingDocument = _decode(_DOCUMENT, data)
    for key, value in document.entries.items():
        if reason := check_value(value):
            raise TimingCacheError(f"damaged timing cache: entry {key!r:.80}: {reason}", fix=_FIX)
    return document


def encode_line(key: str, value: TimingValue) -> bytes:
    """One journal line.

    It begins with a line end as well: should the process before have been killed within its line, this one is whole.
    """
    return b"\n" + msgspec.json.encode((key, value), order="deterministic") + b"\n"


def decode_lines(data: bytes) -> tuple[dict[str, TimingValue], int]:
    """The entries of a journal, the last of each key, and the number of lines that cannot be read."""
    entries: dict[str, TimingValue] = {}
    damaged = 0
    for line in filter(None, data.split(b"\n")):
        try:
            key, value = _decode(_LINE, line)
        except TimingCacheError:
            damaged += 1
            continue
        if check_value(value):
            damaged += 1
        else:
            entries[key] = value
    return entries, damaged


def _decode(decoder: msgspec.json.Decoder[Any], data: bytes) -> Any:
    return decode(decoder, data, lambda reason: TimingCacheError(f"damaged timing cache: {reason}", fix=_FIX))
