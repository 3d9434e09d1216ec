"""Writes the shared library that ONNX Runtime loads, as an ELF file and without a compiler.

It exports what library.c exports: three functions that jump through slots, the slots, and a function that returns 0. It
does not start an interpreter: with empty slots it returns a status that says what is missing. The file has no section
headers, which loading does not need, and no relocations.

The same bytes of the file are mapped twice, once to be run and once, a page further on, to be written: so the file
stays small and no page is both.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from onnxruntime_ep_dovetail.library.machine_code import Processor, find_processor

__all__ = ["build_library", "write_library"]

_MISSING = (
    b"Dovetail: this library was written without a compiler and cannot start Python by itself; "
    b"call onnxruntime_ep_dovetail.get_library_path() in this process first\0"
)

# Sizes and kinds of the ELF format, 64 bits, little-endian.
_HEADER_BYTES = 64
_SEGMENT_BYTES = 56
_SYMBOL_BYTES = 24
_DYNAMIC_BYTES = 16
_POINTER_BYTES = 8
_TYPE_SHARED = 3
_SEGMENT_LOAD, _SEGMENT_DYNAMIC, _SEGMENT_STACK = 1, 2, 0x6474E551
_EXECUTE, _WRITE, _READ = 1, 2, 4
_GLOBAL = 1 << 4
_OBJECT, _FUNCTION = 1, 2
_TAG_END, _TAG_HASH, _TAG_STRINGS, _TAG_SYMBOLS, _TAG_STRINGS_BYTES, _TAG_SYMBOL_BYTES = 0, 4, 5, 6, 10, 11
_NUM_SEGMENTS = 4
_NUM_TAGS = 6
# Symbols are defined in some section; which one does not matter without section headers, as long as it is not 0.
_SOME_SECTION = 1
# The largest page of any Linux kernel for these processors.
_PAGE_BYTES = 0x10000

_FUNCTIONS = ("CreateEpFactories", "ReleaseEpFactory", "RegisterCustomOps", "dovetail_ep_noop")
_SLOTS = ("dovetail_ep_create", "dovetail_ep_release", "dovetail_ep_custom_ops")
_NAMES = _FUNCTIONS + _SLOTS


@dataclass(frozen=True, kw_only=True)
class _Layout:
    """Where everything lies in the file. An address is the same number, plus one page for what can be written."""

    hash_table: int
    symbols: int
    strings: int
    message: int
    functions: tuple[int, ...]
    code_end: int
    dynamic: int
    slots: int
    end: int


def build_library(machine: str | None = None) -> bytes:
    """Return the content of the library for a processor by name, or for the one of this machine."""
    processor = find_processor(machine)
    layout = _plan_layout(processor)
    parts = {
        0: _header(processor) + _segments(layout),
        layout.hash_table: _hash_table(),
        layout.symbols: _symbol_table(layout, _code(processor, layout)),
        layout.strings: _string_table(),
        layout.message: _MISSING,
        **dict(zip(layout.functions, _code(processor, layout), strict=True)),
        layout.dynamic: _dynamic_table(layout),
        layout.slots: bytes(_POINTER_BYTES * len(_SLOTS)),
    }
    content = bytearray(layout.end)
    for offset, part in parts.items():
        content[offset : offset + len(part)] = part
    return bytes(content)


def write_library(path: Path, machine: str | None = None) -> None:
    """Write the library for a processor by name, or for the one of this machine, to a file."""
    path.write_bytes(build_library(machine))


def _align(offset: int) -> int:
    return -(-offset // 16) * 16


def _plan_layout(processor: Processor) -> _Layout:
    """Lay the parts out one after another. Code is measured at address 0, because its length is the same anywhere."""
    hash_table = _HEADER_BYTES + _SEGMENT_BYTES * _NUM_SEGMENTS
    symbols = _align(hash_table + len(_hash_table()))
    strings = symbols + _SYMBOL_BYTES * (1 + len(_NAMES))
    message = strings + len(_string_table())
    at = _align(message + len(_MISSING))
    nowhere = _Layout(
        hash_table=0, symbols=0, strings=0, message=0, functions=(0, 0, 0, 0), code_end=0, dynamic=0, slots=0, end=0
    )
    functions = []
    for piece in _code(processor, nowhere):
        functions.append(at)
        code_end = at + len(piece)
        at = _align(code_end)
    slots = at + _DYNAMIC_BYTES * _NUM_TAGS
    return _Layout(
        hash_table=hash_table,
        symbols=symbols,
        strings=strings,
        message=message,
        functions=tuple(functions),
        code_end=code_end,
        dynamic=at,
        slots=slots,
        end=slots + _POINTER_BYTES * len(_SLOTS),
    )


def _slot_address(layout: _Layout, index: int) -> int:
    return _PAGE_BYTES + layout.slots + _POINTER_BYTES * index


def _code(processor: Processor, layout: _Layout) -> list[bytes]:
    """Return the code of each of _FUNCTIONS."""
    create_at, release_at, custom_ops_at, _ = layout.functions
    create = processor.jump_through(create_at, _slot_address(layout, 0)) + processor.report_none
    create += processor.return_status(create_at + len(create), layout.message)
    release = processor.jump_through(release_at, _slot_address(layout, 1)) + processor.return_null
    custom_ops = processor.jump_through(custom_ops_at, _slot_address(layout, 2))
    custom_ops += processor.return_status(custom_ops_at + len(custom_ops), layout.message)
    return [create, release, custom_ops, processor.return_null]


def _header(processor: Processor) -> bytes:
    identity = b"\x7fELF" + bytes([2, 1, 1]) + bytes(9)  # 64 bits, little-endian, version 1
    facts = (_TYPE_SHARED, processor.elf_machine, 1, 0, _HEADER_BYTES, 0, 0, _HEADER_BYTES, _SEGMENT_BYTES)
    return identity + struct.pack("<HHIQQQIHHHHHH", *facts, _NUM_SEGMENTS, 64, 0, 0)


def _segment(kind: int, rights: int, offset: int, address: int, num_bytes: int, alignment: int) -> bytes:
    return struct.pack("<IIQQQQQQ", kind, rights, offset, address, address, num_bytes, num_bytes, alignment)


def _segments(layout: _Layout) -> bytes:
    start, address = layout.dynamic, _PAGE_BYTES + layout.dynamic
    return (
        _segment(_SEGMENT_LOAD, _READ | _EXECUTE, 0, 0, layout.code_end, _PAGE_BYTES)
        + _segment(_SEGMENT_LOAD, _READ | _WRITE, start, address, layout.end - start, _PAGE_BYTES)
        + _segment(_SEGMENT_DYNAMIC, _READ | _WRITE, start, address, layout.slots - start, _POINTER_BYTES)
        + _segment(_SEGMENT_STACK, _READ | _WRITE, 0, 0, 0, 16)
    )


def _hash_table() -> bytes:
    """Return a table with one bucket that chains all symbols; the first symbol is the undefined one."""
    count = 1 + len(_NAMES)
    chain = [0, *range(2, count), 0]
    return struct.pack(f"<III{count}I", 1, count, 1, *chain)


def _string_table() -> bytes:
    return b"\0" + b"".join(name.encode() + b"\0" for name in _NAMES)


def _symbol(name: str, kind: int, address: int, num_bytes: int) -> bytes:
    place = _string_table().index(b"\0" + name.encode() + b"\0") + 1
    return struct.pack("<IBBHQQ", place, _GLOBAL | kind, 0, _SOME_SECTION, address, num_bytes)


def _symbol_table(layout: _Layout, code: list[bytes]) -> bytes:
    functions = [
        _symbol(name, _FUNCTION, address, len(piece))
        for name, address, piece in zip(_FUNCTIONS, layout.functions, code, strict=True)
    ]
    slots = [_symbol(name, _OBJECT, _slot_address(layout, i), _POINTER_BYTES) for i, name in enumerate(_SLOTS)]
    return bytes(_SYMBOL_BYTES) + b"".join(functions + slots)


def _dynamic_table(layout: _Layout) -> bytes:
    entries = {
        _TAG_HASH: layout.hash_table,
        _TAG_SYMBOLS: layout.symbols,
        _TAG_STRINGS: layout.strings,
        _TAG_STRINGS_BYTES: len(_string_table()),
        _TAG_SYMBOL_BYTES: _SYMBOL_BYTES,
        _TAG_END: 0,
    }
    return b"".join(struct.pack("<QQ", tag, value) for tag, value in entries.items())
