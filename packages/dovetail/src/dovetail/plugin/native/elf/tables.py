"""Records of ELF files, and the checks of symbols and relocations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = [
    "ADDRESS_TAGS",
    "DYNAMIC",
    "PAIRED_TAGS",
    "REPEATED_TAGS",
    "REQUIRED_TAGS",
    "SECTION",
    "SECTIONS_OF_TAGS",
    "SEGMENT",
    "SIZES_OF_TAGS",
    "STRING_TAGS",
    "Damage",
    "Tag",
    "check_relocations",
    "check_symbols",
]

SEGMENT: Final = np.dtype(
    [
        ("type", "<u4"),
        ("flags", "<u4"),
        ("offset", "<u8"),
        ("address", "<u8"),
        ("physical", "<u8"),
        ("file_bytes", "<u8"),
        ("memory_bytes", "<u8"),
        ("alignment", "<u8"),
    ]
)
SECTION: Final = np.dtype(
    [
        ("name", "<u4"),
        ("type", "<u4"),
        ("flags", "<u8"),
        ("address", "<u8"),
        ("offset", "<u8"),
        ("size", "<u8"),
        ("link", "<u4"),
        ("info", "<u4"),
        ("alignment", "<u8"),
        ("entry_bytes", "<u8"),
    ]
)
DYNAMIC: Final = np.dtype([("tag", "<u8"), ("value", "<u8")])
_SYMBOL: Final = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)
_RELOCATION: Final = np.dtype([("offset", "<u8"), ("type", "<u4"), ("symbol", "<u4"), ("addend", "<i8")])


class Tag(IntEnum):
    """Tags of the dynamic section, by their names in the ELF specification without ``DT_``."""

    NEEDED = 1
    PLTRELSZ = 2
    PLTGOT = 3
    HASH = 4
    STRTAB = 5
    SYMTAB = 6
    RELA = 7
    RELASZ = 8
    RELAENT = 9
    STRSZ = 10
    SYMENT = 11
    INIT = 12
    FINI = 13
    SONAME = 14
    RPATH = 15
    PLTREL = 20
    TEXTREL = 22
    JMPREL = 23
    INIT_ARRAY = 25
    FINI_ARRAY = 26
    INIT_ARRAYSZ = 27
    FINI_ARRAYSZ = 28
    RUNPATH = 29
    RELRSZ = 35
    RELR = 36
    RELRENT = 37
    GNU_HASH = 0x6FFFFEF5
    VERSYM = 0x6FFFFFF0
    RELACOUNT = 0x6FFFFFF9
    VERDEF = 0x6FFFFFFC
    VERDEFNUM = 0x6FFFFFFD
    VERNEED = 0x6FFFFFFE
    VERNEEDNUM = 0x6FFFFFFF
    AUXILIARY = 0x7FFFFFFD
    FILTER = 0x7FFFFFFF


REQUIRED_TAGS: Final = (Tag.STRTAB, Tag.STRSZ, Tag.SYMTAB, Tag.SYMENT)
STRING_TAGS: Final = frozenset((Tag.NEEDED, Tag.SONAME, Tag.RPATH, Tag.RUNPATH, Tag.AUXILIARY, Tag.FILTER))
REPEATED_TAGS: Final = frozenset((Tag.NEEDED, Tag.AUXILIARY, Tag.FILTER))
SIZES_OF_TAGS: Final[dict[Tag, Tag]] = {
    Tag.STRTAB: Tag.STRSZ,
    Tag.RELA: Tag.RELASZ,
    Tag.JMPREL: Tag.PLTRELSZ,
    Tag.INIT_ARRAY: Tag.INIT_ARRAYSZ,
    Tag.FINI_ARRAY: Tag.FINI_ARRAYSZ,
    Tag.RELR: Tag.RELRSZ,
}
"""Entries that hold the address of a table, and the entry that holds its size in bytes."""
PAIRED_TAGS: Final[dict[Tag, Tag]] = {
    Tag.RELA: Tag.RELAENT,
    Tag.JMPREL: Tag.PLTREL,
    Tag.RELR: Tag.RELRENT,
    Tag.VERDEF: Tag.VERDEFNUM,
    Tag.VERNEED: Tag.VERNEEDNUM,
}
"""Other entries that occur together."""
SECTIONS_OF_TAGS: Final[dict[Tag, tuple[int, ...]]] = {
    Tag.HASH: (5,),
    Tag.GNU_HASH: (0x6FFFFFF6,),
    Tag.STRTAB: (3,),
    Tag.SYMTAB: (11,),
    Tag.RELA: (4,),
    Tag.JMPREL: (4,),
    Tag.RELR: (19,),
    Tag.INIT_ARRAY: (14,),
    Tag.FINI_ARRAY: (15,),
    Tag.VERSYM: (0x6FFFFFFF,),
    Tag.VERDEF: (0x6FFFFFFD,),
    Tag.VERNEED: (0x6FFFFFFE,),
}
"""Types of the sections that begin at these addresses; those of code and data have type 1."""
ADDRESS_TAGS: Final = (*SECTIONS_OF_TAGS, Tag.INIT, Tag.FINI)
_LOCAL_SECTIONS: Final = 0xFF00
"""Section numbers from here on are reserved, such as that of absolute symbols."""

_MAX_VERSIONS: Final = 1 << 16
"""Version numbers of symbols have 16 bits."""

_View = Callable[[int, int, str], npt.NDArray[np.uint8]]


class Damage(Exception):
    """A contradiction in the headers of a file."""

    def __init__(self, what: str, *, expected: object = None, got: object = None) -> None:
        super().__init__(what)
        self.what, self.expected, self.got = what, expected, got


def check_symbols(view: _View, tags: Mapping[int, int], strings_bytes: int, count: int | None) -> int:
    """Check the table of dynamic symbols and its hash table.

    Args:
        view: Returns the bytes at an address, or raises.
        tags: Entries of the dynamic section.
        strings_bytes: Size of the table of strings.
        count: Number of symbols, if the section headers contain it.

    Returns:
        The number of symbols.
    """
    what = "the library file is damaged: its dynamic symbols"
    if tags[Tag.SYMENT] != _SYMBOL.itemsize:
        raise Damage(what, expected=f"entries of {_SYMBOL.itemsize} bytes", got=tags[Tag.SYMENT])
    hashed = _count_hashed(view, tags, what)
    number = hashed if count is None else count
    if number < hashed:
        raise Damage(what, expected=f"at most {number} in the hash table", got=hashed)
    symbols = view(tags[Tag.SYMTAB], number * _SYMBOL.itemsize, what).view(_SYMBOL)
    if (symbols["name"] >= strings_bytes).any() or (number and symbols[0].tobytes().strip(b"\0")):
        raise Damage(what, got="a name outside of the table of strings")
    if Tag.VERSYM in tags:
        view(tags[Tag.VERSYM], 2 * number, what)
    for tag, num in ((Tag.VERDEF, Tag.VERDEFNUM), (Tag.VERNEED, Tag.VERNEEDNUM)):
        if tags.get(num, 0) > _MAX_VERSIONS:
            raise Damage(what, expected=f"at most {_MAX_VERSIONS} in {num.name}", got=tags[num])
        if tag in tags:
            _check_versions(view, tags[tag], tags[num], 8 if tag is Tag.VERDEF else 0, what)
    return number


def _check_versions(view: _View, address: int, count: int, skipped: int, what: str) -> None:
    """Follow a chain of versions: each record holds its parts and the distance to the next one."""
    for index in range(count):
        record = view(address, 16 + (4 if skipped else 0), what).view("<u2")
        words = view(address + (12 if skipped else 8), 8, what).view("<u4")
        first, following = int(words[0]), int(words[1])
        num_parts = int(record[3] if skipped else record[1])
        if record[0] != 1:
            raise Damage(what, expected="version 1 of the table of versions", got=int(record[0]))
        part = address + first
        for position in range(num_parts):
            step = int(view(part, 8 if skipped else 16, what).view("<u4")[1 if skipped else 3])
            if position + 1 < num_parts and not step:
                raise Damage(what, got="a table of versions that ends too early")
            part += step
        if (index + 1 < count) != bool(following):
            raise Damage(what, got="a table of versions with another number of entries")
        address += following


def _count_hashed(view: _View, tags: Mapping[int, int], what: str) -> int:
    """Return the number of symbols that a hash table covers, after a check of its links."""
    if Tag.GNU_HASH in tags:
        return _count_gnu_hashed(view, tags[Tag.GNU_HASH], what)
    if Tag.HASH not in tags:
        raise Damage(what, got="no hash table")
    num_buckets, num_chains = view(tags[Tag.HASH], 8, what).view("<u4").tolist()
    links = view(tags[Tag.HASH] + 8, 4 * (num_buckets + num_chains), what).view("<u4")
    if not num_buckets or (links >= num_chains).any():
        raise Damage(what, got="a hash table with links outside of it")
    return int(num_chains)


def _count_gnu_hashed(view: _View, address: int, what: str) -> int:
    num_buckets, first, bloom_words, _ = view(address, 16, what).view("<u4").tolist()
    if not num_buckets or not bloom_words or bloom_words & (bloom_words - 1):
        raise Damage(what, got=f"a hash table of {num_buckets} buckets and {bloom_words} words")
    start = address + 16 + 8 * bloom_words
    buckets = view(start, 4 * num_buckets, what).view("<u4")
    used = buckets[buckets != 0]
    if not used.size:
        return int(first)
    if (used < first).any():
        raise Damage(what, got="a bucket of unhashed symbols")
    last, chain = int(used.max()), start + 4 * num_buckets
    while not int(view(chain + 4 * (last - first), 4, what).view("<u4")[0]) & 1:
        last += 1
    return last + 1


def check_relocations(
    view: _View, writable: Callable[[], Sequence[tuple[int, int]]], tags: Mapping[int, int], num_symbols: int
) -> None:
    """Check that relocations write inside of writable segments and name existing symbols.

    Args:
        view: Returns the bytes at an address, or raises.
        writable: Returns the address ranges of writable segments.
        tags: Entries of the dynamic section.
        num_symbols: Number of dynamic symbols.
    """
    what = "the library file is damaged: its relocations"
    if tags.get(Tag.RELAENT, 24) != 24 or tags.get(Tag.PLTREL, Tag.RELA) != Tag.RELA or tags.get(Tag.RELRENT, 8) != 8:
        raise Damage(what, got="an unknown size or kind of entries")
    ranges = writable()
    for table, size in ((Tag.RELA, Tag.RELASZ), (Tag.JMPREL, Tag.PLTRELSZ)):
        if table not in tags:
            continue
        if tags[size] % _RELOCATION.itemsize:
            raise Damage(what, got=f"{tags[size]} bytes")
        entries = view(tags[table], tags[size], what).view(_RELOCATION)
        if Tag.RELACOUNT in tags and table is Tag.RELA and tags[Tag.RELACOUNT] > len(entries):
            raise Damage(what, expected=f"at most {len(entries)} relative ones", got=tags[Tag.RELACOUNT])
        _check_entries(entries[entries["type"] != 0], ranges, num_symbols, has_text=Tag.TEXTREL in tags, what=what)
    for array in (Tag.INIT_ARRAYSZ, Tag.FINI_ARRAYSZ):
        if tags.get(array, 0) % 8:
            raise Damage(what, got=f"{array.name} of {tags[array]} bytes")


def _check_entries(
    entries: npt.NDArray[Any], ranges: Sequence[tuple[int, int]], num_symbols: int, *, has_text: bool, what: str
) -> None:
    offsets = entries["offset"]
    inside = np.zeros(len(entries), bool)
    for start, end in ranges:
        inside |= (offsets >= start) & (offsets <= max(end - 8, 0))
    if not (inside.all() or has_text):
        raise Damage(what, got=f"one at {int(offsets[~inside][0]):#x}, which is not writable")
    if (entries["symbol"] >= max(num_symbols, 1)).any():
        raise Damage(what, got="one of a symbol that does not exist")
