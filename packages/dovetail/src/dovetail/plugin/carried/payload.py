"""A plugin library as bytes, so that a plan can carry it.

A Python library is one strict JSON map from relative paths to sources and data. A C++ library is its file, as it is.
Nothing is ever written to disk from either. The same library gives the same bytes. Whoever reads a payload has checked
nothing about what its code does: that is the runtime's ``host_code`` decision.
"""

from __future__ import annotations

import struct
import tokenize
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

import msgspec

from dovetail.decoding import decode
from dovetail.errors import PlanCorruptError, PluginError

__all__ = [
    "ElfTarget",
    "LibraryPayload",
    "NativePayload",
    "decode_payload",
    "is_native",
    "pack_library",
    "read_elf_target",
]

MAX_PAYLOAD_BYTES: Final = 64 * 2**20
MAX_NATIVE_BYTES: Final = 2**30
MAX_FILES: Final = 2000
MAX_PATH_BYTES: Final = 255
NATIVE_SUFFIXES: Final = frozenset((".so", ".dll", ".dylib", ".pyd"))
_INIT: Final = "__init__.py"
_ELF: Final = b"\x7fELF"
_ELF_HEADER_BYTES: Final = 64
_ELF_SHARED: Final = 3


class LibraryPayload(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="dovetail-library/1"):
    """What ``pack_library`` writes: a package has ``__init__.py`` at its root, a single file is the only source."""

    is_package: bool
    sources: dict[str, str]
    data: dict[str, bytes] = {}


class NativePayload(NamedTuple):
    """The file of a C++ library."""

    data: bytes


class ElfTarget(NamedTuple):
    """The machine that an ELF file is for, by the numbers of its header."""

    bits: int
    byte_order: str
    machine: int

    def __str__(self) -> str:
        names = {3: "x86", 40: "ARM", 62: "x86-64", 183: "AArch64", 243: "RISC-V"}
        name = names.get(self.machine, f"machine {self.machine}")
        return f"{name}, {self.bits} bits, {self.byte_order}-endian"


_DECODER: Final = msgspec.json.Decoder(LibraryPayload)


def is_native(path: Path) -> bool:
    """Whether a file's name is that of a shared library.

    >>> is_native(Path("libpad.so.1")), is_native(Path("pad.so.py"))
    (True, False)
    """
    return path.suffix != ".py" and bool(NATIVE_SUFFIXES & set(path.suffixes))


def pack_library(path: str | Path) -> bytes:
    """A plugin library, a Python file, a package folder or a C++ library, as bytes.

    Files of a package that are not Python come along as data, for ``pkgutil.get_data``. Hidden files and byte code do
    not; a compiled extension module of a package is refused, because it would be left behind.
    """
    root = Path(path)
    if root.is_file() and is_native(root):
        return _checked(root.read_bytes(), root)
    if root.is_dir():
        payload = _pack_folder(root)
    elif root.is_file():
        payload = LibraryPayload(is_package=False, sources={root.name: _read_source(root)})
    else:
        fix = "pass a Python file, a folder or a shared library"
        raise PluginError("there is no such plugin library", where=str(root), fix=fix)
    return _checked(msgspec.json.encode(payload, order="deterministic"), root)


def _checked(payload: bytes, root: Path) -> bytes:
    try:
        decode_payload(payload, where=str(root))
    except PlanCorruptError as error:
        raise PluginError(f"the library cannot be carried in a plan: {error.what}", where=str(root)) from None
    return payload


def _pack_folder(root: Path) -> LibraryPayload:
    sources: dict[str, str] = {}
    data: dict[str, bytes] = {}
    for file in sorted(root.rglob("*")):
        relative = file.relative_to(root)
        if not file.is_file() or _is_ignored(relative):
            continue
        if is_native(file):
            raise PluginError(
                "a library with compiled modules cannot be carried in a plan",
                where=str(file),
                fix="install the compiled part on the target, or write it in Python",
            )
        if file.suffix == ".py":
            sources[relative.as_posix()] = _read_source(file)
        else:
            data[relative.as_posix()] = file.read_bytes()
    return LibraryPayload(is_package=True, sources=sources, data=data)


def _is_ignored(relative: Path) -> bool:
    return relative.suffix in (".pyc", ".pyo") or any(
        part.startswith(".") or part == "__pycache__" for part in relative.parts
    )


def _read_source(file: Path) -> str:
    try:
        with tokenize.open(file) as stream:  # honours the encoding that the file declares
            return stream.read()
    except (SyntaxError, UnicodeDecodeError) as error:
        raise PluginError(f"the source cannot be decoded: {error}", where=str(file)) from error


def decode_payload(payload: bytes, *, where: str) -> LibraryPayload | NativePayload:
    """Read and check a payload; nothing of it is imported."""
    if payload.startswith(_ELF):
        _require_at_most(MAX_NATIVE_BYTES, payload, where)
        _check_elf(payload, where)
        return NativePayload(payload)
    _require_at_most(MAX_PAYLOAD_BYTES, payload, where)
    library = decode(
        _DECODER, payload, lambda reason: PlanCorruptError(f"a plugin library is malformed: {reason}", where=where)
    )
    _check(library, where)
    return library


def _require_at_most(limit_bytes: int, payload: bytes, where: str) -> None:
    if len(payload) > limit_bytes:
        raise PlanCorruptError(
            "a plugin library is too large", where=where, expected=f"at most {limit_bytes} bytes", got=len(payload)
        )


def _check_elf(data: bytes, where: str) -> None:
    is_whole = len(data) >= _ELF_HEADER_BYTES
    order = "<" if data[5:6] == b"\x01" else ">"
    if not is_whole or struct.unpack_from(f"{order}H", data, 16)[0] != _ELF_SHARED:
        raise PlanCorruptError("a plugin library is no shared library", where=where, got=f"{len(data)} bytes of ELF")


def read_elf_target(header: bytes) -> ElfTarget:
    """What machine an ELF file is for, from its first 64 bytes."""
    order = "little" if header[5:6] == b"\x01" else "big"
    machine = int.from_bytes(header[18:20], "little" if order == "little" else "big")
    return ElfTarget(64 if header[4:5] == b"\x02" else 32, order, machine)


def _check(library: LibraryPayload, where: str) -> None:
    if len(library.sources) + len(library.data) > MAX_FILES:
        raise PlanCorruptError("a plugin library has too many files", where=where, expected=f"at most {MAX_FILES}")
    if library.sources.keys() & library.data.keys():
        raise PlanCorruptError("a plugin library names a file twice", where=where)
    for name in (*library.sources, *library.data):
        _check_path(name, where)
    if library.is_package and _INIT not in library.sources:
        raise PlanCorruptError("a plugin library that is a package has no __init__.py", where=where)
    if not library.is_package and (len(library.sources) != 1 or library.data):
        raise PlanCorruptError("a plugin library that is a file must hold exactly one source", where=where)
    for name in library.sources:
        _check_source_path(name, where, must_import=library.is_package)


def _check_path(name: str, where: str) -> None:
    parts = name.split("/")
    is_plain = name.isprintable() and "\\" not in name and ":" not in name and len(name.encode()) <= MAX_PATH_BYTES
    if not is_plain or any(part in ("", ".", "..") for part in parts):
        raise PlanCorruptError(
            "a plugin library has a path that is not a plain relative one", where=where, got=repr(name[:60])
        )


def _check_source_path(name: str, where: str, *, must_import: bool) -> None:
    """A single file may be called anything; the modules of a package are imported by their names."""
    path = PurePosixPath(name)
    can_import = all(part.isidentifier() for part in (*path.parts[:-1], path.stem))
    if path.suffix != ".py" or (must_import and not can_import):
        raise PlanCorruptError(
            "a plugin library has a source that is no module",
            where=where,
            expected="letters, digits and underscores, then .py",
            got=repr(name[:60]),
        )
