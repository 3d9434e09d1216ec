"""Validation of ELF files before the dynamic linker maps them.

The linker trusts headers: a segment behind the end of the file, a dynamic section with a wrong address or a relocation
outside of the library end the process. The headers say most things twice, in the program headers with the dynamic
section and in the section headers, so that damage shows as a contradiction. Code and data are not checked.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from dovetail.errors import PluginError
from dovetail.plugin.native.elf.tables import (
    ADDRESS_TAGS,
    DYNAMIC,
    PAIRED_TAGS,
    REPEATED_TAGS,
    REQUIRED_TAGS,
    SECTION,
    SECTIONS_OF_TAGS,
    SEGMENT,
    SIZES_OF_TAGS,
    STRING_TAGS,
    Damage,
    Tag,
    check_relocations,
    check_symbols,
)

__all__ = ["require_valid"]

_MAGIC: Final = b"\x7fELF\x02\x01"
"""64 bits, least significant byte first. The linker rejects files of other kinds."""
_HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")
_SHARED_OBJECT: Final = 3
_PAGE_BYTES: Final = 4096
_MAX_ADDRESS: Final = 1 << 40
"""Larger address spaces of one library are mistakes; the linker would reserve them."""
_MAX_THREAD_BYTES: Final = 1 << 28
"""More memory for each thread is a mistake, and ends the process where it cannot be allocated."""
_LOAD, _DYNAMIC, _INTERPRETER, _NOTE, _HEADERS, _THREAD = 1, 2, 3, 4, 6, 7
_EH_FRAME, _RELRO, _PROPERTY = 0x6474E550, 0x6474E552, 0x6474E553
_ONE_AT_MOST: Final = (_DYNAMIC, _HEADERS, _THREAD, _EH_FRAME, _RELRO)
_INSIDE: Final = (_DYNAMIC, _NOTE, _HEADERS, _THREAD, _EH_FRAME, _RELRO, _PROPERTY)
"""Segments that are part of a loaded one."""
_EXECUTE, _WRITE, _READ = 1, 2, 4
_SECTION_WRITE, _SECTION_ALLOCATED, _SECTION_EXECUTE, _SECTION_THREAD = 1, 2, 4, 0x400
_NO_BITS: Final = 8
_STRINGS: Final = 3


class _FileHeader(NamedTuple):
    """The fields of the file header, by their names in the ELF specification without ``e_``."""

    ident: bytes
    type: int
    machine: int
    version: int
    entry: int
    phoff: int
    shoff: int
    flags: int
    ehsize: int
    phentsize: int
    phnum: int
    shentsize: int
    shnum: int
    shstrndx: int


def require_valid(path: Path, where: str) -> list[str]:
    """Check the headers of a library.

    Args:
        path: The file.
        where: What to call it in messages.

    Returns:
        The names of the libraries that it needs; none for a file that the linker rejects by its first bytes.

    Raises:
        PluginError: The file is cut short, or its headers contradict each other.
    """
    data = np.memmap(path, np.uint8, "r").view(np.ndarray)
    head = data[: _HEADER.size].tobytes()
    if not head.startswith(_MAGIC):
        return []
    try:
        return _ElfFile(data, head).check()
    except Damage as damage:
        raise PluginError(
            damage.what, where=where, expected=damage.expected, got=damage.got, fix="copy it again, or build it again"
        ) from None


class _ElfFile:
    """The headers of one file."""

    def __init__(self, data: npt.NDArray[np.uint8], head: bytes) -> None:
        self._data = data
        self._require_bytes(_HEADER.size)
        self._header = header = _FileHeader._make(_HEADER.unpack(head))
        kinds = (header.type, header.version, header.ehsize, header.phentsize)
        _require(kinds == (_SHARED_OBJECT, 1, _HEADER.size, SEGMENT.itemsize), "the file header is damaged", kinds)
        self._segments = self._read(SEGMENT, header.phoff, header.phnum)
        self._sections = self._read(SECTION, header.shoff, header.shnum if header.shoff else 0)
        has_sections = header.shoff == 0 or header.shentsize == SECTION.itemsize
        _require(
            has_sections and (header.shoff == 0) == (header.shnum == 0), "the section headers are damaged", header.shnum
        )
        self._loads = self._segments[self._segments["type"] == _LOAD]
        self._strings: list[tuple[int, int]] = []
        """Tags and offsets of the strings that the dynamic section names."""

    def check(self) -> list[str]:
        """Check everything that the linker reads before it runs code, and return the names of needed libraries."""
        self._check_loads()
        for segment in self._segments:
            self._check_segment(segment)
        for kind in _ONE_AT_MOST:
            count = int(np.count_nonzero(self._segments["type"] == kind))
            _require(count <= 1 and (count == 1 or kind != _DYNAMIC), f"{count} segments have type {kind:#x}", count)
        self._locate(self._header.phoff, SEGMENT.itemsize * self._header.phnum, "the program headers", by_offset=True)
        for section in self._sections:
            self._check_section(section)
        return self._check_dynamic(dict(self._read_dynamic()))

    def _read(self, dtype: np.dtype[Any], offset: int, count: int) -> npt.NDArray[Any]:
        self._require_bytes(offset + count * dtype.itemsize)
        return self._data[offset : offset + count * dtype.itemsize].view(dtype)

    def _require_bytes(self, needed: int) -> None:
        if needed > self._data.size:
            raise Damage("the library is cut short", expected=f"at least {needed} bytes", got=self._data.size)

    # segments

    def _check_loads(self) -> None:
        end = 0
        _require(len(self._loads) > 0, "the library has no segments to load", 0)
        self._require_bytes(max(int(s["offset"]) + int(s["file_bytes"]) for s in self._loads))
        for segment in self._loads:
            start, size, alignment = int(segment["address"]), int(segment["memory_bytes"]), int(segment["alignment"])
            what = "a loaded segment is damaged"
            _require(int(segment["file_bytes"]) <= size, what, f"{size} bytes in memory")
            _require(start + size <= _MAX_ADDRESS, what, f"address {start:#x} and {size} bytes")
            _require(start // _PAGE_BYTES * _PAGE_BYTES >= end, what, f"address {start:#x} below {end:#x}")
            is_aligned = alignment >= _PAGE_BYTES and not alignment & (alignment - 1)
            _require(
                is_aligned and (start - int(segment["offset"])) % alignment == 0, what, f"alignment {alignment:#x}"
            )
            _require(int(segment["flags"]) & ~_EXECUTE & ~_WRITE == _READ, what, f"flags {segment['flags']:#x}")
            end = -(-(start + size) // _PAGE_BYTES) * _PAGE_BYTES

    def _check_segment(self, segment: Any) -> None:
        kind, size = int(segment["type"]), int(segment["memory_bytes"])
        what = f"a segment of type {kind:#x} is damaged"
        _require(kind <= _THREAD or kind >= 0x60000000, what, hex(kind))
        if kind == _THREAD:
            _require(size <= _MAX_THREAD_BYTES, what, f"{size} bytes for each thread")
            _require(int(segment["alignment"]) <= _PAGE_BYTES, what, f"alignment {segment['alignment']:#x}")
        if kind not in _INSIDE or not segment["file_bytes"]:
            return
        _require(int(segment["file_bytes"]) <= size, what, f"{size} bytes in memory")
        load = self._locate(int(segment["address"]), int(segment["file_bytes"]), what)
        shift = int(load["address"]) - int(load["offset"])
        _require(int(segment["address"]) - int(segment["offset"]) == shift, what, f"offset {segment['offset']:#x}")
        alignment = int(segment["alignment"])
        _require(not alignment & (alignment - 1) and alignment <= 1 << 21, what, f"alignment {alignment:#x}")
        if kind == _THREAD:  # its zeros take no addresses of the library
            return
        end = -(-(int(load["address"]) + int(load["memory_bytes"])) // _PAGE_BYTES) * _PAGE_BYTES
        _require(int(segment["address"]) + size <= end, what, f"{size} bytes in memory")

    def _locate(self, start: int, size: int, what: str, *, by_offset: bool = False, flags: int = _READ) -> Any:
        """Return the loaded segment whose part in the file contains a range.

        Args:
            start: Address of the range, or its offset in the file.
            size: Bytes of the range.
            what: Message where there is none.
            by_offset: Whether `start` is an offset.
            flags: Permissions that the segment needs.
        """
        for load in self._loads:
            begin = int(load["offset" if by_offset else "address"])
            if begin <= start and start + size <= begin + int(load["file_bytes"]):
                _require(int(load["flags"]) & flags == flags, what, f"permissions {load['flags']:#x}")
                return load
        raise Damage(what, expected="a range inside of a loaded segment", got=f"{start:#x} with {size} bytes")

    def view(self, address: int, size: int, what: str, flags: int = _READ) -> npt.NDArray[np.uint8]:
        """Return the bytes of the file at an address."""
        load = self._locate(address, size, what, flags=flags)
        offset = int(load["offset"]) + address - int(load["address"])
        return self._data[offset : offset + size]

    # sections

    def _check_section(self, section: Any) -> None:
        flags, size, kind = int(section["flags"]), int(section["size"]), int(section["type"])
        what = "the section headers contradict the segments"
        if kind != _NO_BITS and kind:
            self._require_bytes(int(section["offset"]) + size)
        if not flags & _SECTION_ALLOCATED or not size or flags & _SECTION_THREAD:
            return
        wanted = _READ | (_WRITE if flags & _SECTION_WRITE else 0) | (_EXECUTE if flags & _SECTION_EXECUTE else 0)
        start = int(section["address"])
        if kind != _NO_BITS:
            load = self._locate(start, size, what, flags=wanted)
            shift = int(load["address"]) - int(load["offset"])
            _require(start - int(section["offset"]) == shift, what, f"address {start:#x}")
            return
        ends = [(int(s["address"]), int(s["address"]) + int(s["memory_bytes"])) for s in self._loads]
        _require(any(a <= start and start + size <= b for a, b in ends), what, f"address {start:#x}")

    # the dynamic section

    def _read_dynamic(self) -> Iterator[tuple[int, int]]:
        what = "the dynamic section is damaged"
        (segment,) = self._segments[self._segments["type"] == _DYNAMIC]
        address, size = int(segment["address"]), int(segment["file_bytes"])
        _require(size % DYNAMIC.itemsize == 0 and address % 8 == 0, what, f"{size} bytes at {address:#x}")
        known = [(int(s["address"]), int(s["size"])) for s in self._sections if s["type"] == 6]
        _require(not len(self._sections) or known == [(address, size)], what, f"{size} bytes at {address:#x}")
        entries = self.view(address, size, what, _READ | _WRITE).view(DYNAMIC)
        seen = set[int]()
        for position, (tag, value) in enumerate(entries.tolist()):
            if tag == 0:
                _require(not entries["tag"][position:].any(), what, "an end before its last entry")
                return
            _require(tag in REPEATED_TAGS or tag not in seen, what, f"tag {tag:#x} twice")
            seen.add(tag)
            yield tag, value
            if tag in STRING_TAGS:
                self._strings.append((tag, value))
        raise Damage(what, expected="an entry DT_NULL at its end", got="none")

    def _check_dynamic(self, tags: dict[int, int]) -> list[str]:
        what = "the dynamic section is damaged"
        for tag in REQUIRED_TAGS:
            _require(tag in tags, what, f"no entry {tag.name}")
        for first, second in (*SIZES_OF_TAGS.items(), *PAIRED_TAGS.items()):
            _require((first in tags) == (second in tags), what, f"one of {first.name} and {second.name}")
        self._check_named(tags)
        for tag in ADDRESS_TAGS:
            if tag in tags:
                self._check_address(tag, tags[tag], tags[SIZES_OF_TAGS[tag]] if tag in SIZES_OF_TAGS else 1)
        strings = self.view(tags[Tag.STRTAB], tags[Tag.STRSZ], what)
        _require(len(strings) > 0 and strings[0] == strings[-1] == 0, what, "a table of strings without its ends")
        _require(all(offset < len(strings) for _, offset in self._strings), what, "a string outside of its table")
        num_symbols = check_symbols(self.view, tags, len(strings), self._count_symbols(tags))
        check_relocations(self.view, self._writable, tags, num_symbols)
        text = strings.tobytes()
        needed = [offset for tag, offset in self._strings if tag == Tag.NEEDED]
        return [text[offset : text.index(0, offset)].decode(errors="replace") for offset in needed]

    def _check_named(self, tags: dict[int, int]) -> None:
        """Check that an entry names each section that the linker finds by one."""
        for section in self._sections:
            start, kind = int(section["address"]), int(section["type"])
            if not section["flags"] & _SECTION_ALLOCATED or not section["size"]:
                continue
            naming = [tag for tag, kinds in SECTIONS_OF_TAGS.items() if kind in kinds and kind != _STRINGS]
            spans = [(tags[t], tags[t] + tags.get(SIZES_OF_TAGS.get(t, -1), 1)) for t in naming if t in tags]
            is_named = not naming or any(begin <= start < end for begin, end in spans)
            _require(is_named, "the dynamic section is damaged", f"no entry for the section at {start:#x}")

    def _check_address(self, tag: Tag, address: int, size: int) -> None:
        what = f"the entry {tag.name} of the dynamic section is damaged"
        executed = tag in (Tag.INIT, Tag.FINI)
        self._locate(address, 1 if executed else size, what, flags=_READ | (_EXECUTE if executed else 0))
        is_function = executed and address % 16 == 0  # any function can be linked with -init and -fini
        if is_function or not len(self._sections):
            return
        kinds = SECTIONS_OF_TAGS.get(tag, (1,))
        found = [s for s in self._sections if int(s["address"]) == address and int(s["type"]) in kinds]
        _require(bool(found), what, f"{address:#x}, where no such section begins")
        if tag in SIZES_OF_TAGS:
            _require(any(int(s["size"]) == size for s in found), what, f"{size} bytes")

    def _count_symbols(self, tags: dict[int, int]) -> int | None:
        sizes = [int(s["size"]) for s in self._sections if int(s["address"]) == tags[Tag.SYMTAB] and s["type"] == 11]
        return sizes[0] // 24 if sizes else None

    def _writable(self) -> Sequence[tuple[int, int]]:
        loads = self._loads[(self._loads["flags"] & _WRITE) != 0]
        return [(int(s["address"]), int(s["address"]) + int(s["memory_bytes"])) for s in loads]


def _require(holds: bool, what: str, got: object) -> None:
    if not holds:
        raise Damage(f"the library file is damaged: {what}", got=got)
