"""Whether a library file is whole: the system maps what its header promises, and what is missing ends the process."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Final, NamedTuple

from dovetail.errors import PluginError
from dovetail.files import open_regular

__all__ = ["require_whole"]

_MAGIC: Final = b"\x7fELF\x02\x01"
"""Of 64 bits, with the least significant byte first. Files of other kinds are refused by the system."""
_HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT: Final = struct.Struct("<IIQQQQQQ")
_LOADED: Final = 1


class _Segment(NamedTuple):
    """A part of the file, as its header describes it."""

    kind: int
    flags: int
    offset: int
    address: int
    physical_address: int
    file_bytes: int
    memory_bytes: int
    alignment: int


def require_whole(path: Path, where: str) -> None:
    """Refuse a library that ends before the parts that its header promises.

    Raises:
        PluginError: The file was cut short.
    """
    with open_regular(path, follow=True) as file:
        size = os.fstat(file.fileno()).st_size
        head = file.read(_HEADER.size)
        if not head.startswith(_MAGIC):
            return
        needed = _HEADER.size
        if len(head) == _HEADER.size:
            offset, count = _find_segments(head)
            file.seek(min(offset, size))
            needed = _find_end(file.read(count * _SEGMENT.size), offset, count)
    if needed > size:
        raise PluginError(
            "the library is cut short",
            where=where,
            expected=f"at least {needed} bytes",
            got=size,
            fix="copy it again, or build it again",
        )


def _find_segments(head: bytes) -> tuple[int, int]:
    """Where the descriptions of segments begin, and how many there are."""
    fields = _HEADER.unpack(head)
    offset, entry_bytes, count = fields[5], fields[9], fields[10]
    return offset, count if entry_bytes == _SEGMENT.size else 0


def _find_end(table: bytes, offset: int, count: int) -> int:
    """Where the last part of the file ends that is loaded, or the table itself."""
    whole = table[: len(table) // _SEGMENT.size * _SEGMENT.size]
    segments = map(_Segment._make, _SEGMENT.iter_unpack(whole))
    ends = [each.offset + each.file_bytes for each in segments if each.kind == _LOADED]
    return max([offset + count * _SEGMENT.size, *ends])
