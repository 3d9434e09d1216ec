"""How long a plan is, from its first bytes: for readers of streams, which must not ask for more than there is."""

from __future__ import annotations

import msgspec

from dovetail.plan._header import LENGTH_BYTES, MAX_HEADER_BYTES, METADATA

__all__ = ["count_missing_bytes"]


class _Extent(msgspec.Struct, gc=False):
    data_offsets: tuple[int, int]


_TABLE = msgspec.json.Decoder(dict[str, msgspec.Raw])
_EXTENT = msgspec.json.Decoder(_Extent)


def count_missing_bytes(start: bytes | bytearray) -> int:
    """How many bytes are known to follow these, the first of a plan; 0 when it is whole or these are of no plan.

    The length field, the header and the data follow each other, so a plan is whole after three answers.

    >>> count_missing_bytes(b""), count_missing_bytes((300).to_bytes(8, "little"))
    (8, 300)
    """
    if len(start) < LENGTH_BYTES:
        return LENGTH_BYTES - len(start)
    header_bytes = int.from_bytes(start[:LENGTH_BYTES], "little")
    end = LENGTH_BYTES + header_bytes
    if header_bytes > MAX_HEADER_BYTES:
        return 0
    if len(start) >= end:
        end += _count_data_bytes(start[LENGTH_BYTES:end])
    return max(0, end - len(start))


def _count_data_bytes(header: bytes | bytearray) -> int:
    """Where the last tensor ends; 0 for what is no header."""
    try:
        table = _TABLE.decode(header)
        return max((_EXTENT.decode(table[name]).data_offsets[1] for name in table if name != METADATA), default=0)
    except (msgspec.DecodeError, RecursionError):
        return 0
