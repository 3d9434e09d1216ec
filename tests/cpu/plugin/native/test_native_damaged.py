"""Damaged library files: a named error instead of a signal from the dynamic linker."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dovetail.errors import DovetailError, PluginError
from dovetail.plugin.native.elf.headers import require_valid
from dovetail.plugin.registry import PluginRegistry
from tests.support.native_libraries import Compile

PROGRAM = Path(__file__).parent / "programs" / "open_damaged.py"
SYSTEM_FOLDERS = [Path("/usr/lib"), Path(sys.prefix) / "lib"]


def read_at(data: bytes, offset: int) -> int:
    value: int = struct.unpack_from("<Q", data, offset)[0]
    return value


def put(data: bytearray, offset: int, value: int, form: str = "<Q") -> None:
    struct.pack_into(form, data, offset, value)


def segment_of(data: bytes, kind: int) -> int:
    """Offset of the first program header of a type."""
    start, count = read_at(data, 32), struct.unpack_from("<H", data, 56)[0]
    return next(start + 56 * i for i in range(count) if struct.unpack_from("<I", data, start + 56 * i)[0] == kind)


def entry_of(data: bytes, tag: int) -> int:
    """Offset of the entry of the dynamic section with a tag."""
    start = read_at(data, segment_of(data, 2) + 8)
    return next(at for at in range(start, len(data), 16) if read_at(data, at) == tag)


DAMAGES: dict[str, Callable[[bytearray], None]] = {
    "section headers behind the end": lambda d: put(d, 40, len(d) + 1),
    "section headers far behind the end": lambda d: put(d, 40, 2**63),
    "program headers behind the end": lambda d: put(d, 32, len(d)),
    "size of a program header": lambda d: put(d, 54, 55, "<H"),
    "number of program headers": lambda d: put(d, 56, 0xFFFF, "<H"),
    "no program headers": lambda d: put(d, 56, 0, "<H"),
    "a type of file": lambda d: put(d, 16, 2, "<H"),
    "another machine": lambda d: put(d, 18, 8, "<H"),
    "version of the format": lambda d: put(d, 20, 9, "<I"),
    "a segment behind the end": lambda d: put(d, segment_of(d, 1) + 8, 2**40),
    "a segment of too many bytes": lambda d: put(d, segment_of(d, 1) + 32, 2**50),
    "a segment without memory": lambda d: put(d, segment_of(d, 1) + 40, 0),
    "a segment at a high address": lambda d: put(d, segment_of(d, 1) + 16, 2**63),
    "alignment of a segment": lambda d: put(d, segment_of(d, 1) + 48, 3),
    "no dynamic section": lambda d: put(d, segment_of(d, 2), 0, "<I"),
    "address of the dynamic section": lambda d: put(d, segment_of(d, 2) + 16, 2**32),
    "offset of the dynamic section": lambda d: put(d, segment_of(d, 2) + 8, 0),
    "size of the dynamic section": lambda d: put(d, segment_of(d, 2) + 32, 8),
    "address of the strings": lambda d: put(d, entry_of(d, 5) + 8, 2**40),
    "size of the strings": lambda d: put(d, entry_of(d, 10) + 8, 2**40),
    "address of the symbols": lambda d: put(d, entry_of(d, 6) + 8, 0),
    "size of a symbol": lambda d: put(d, entry_of(d, 11) + 8, 0),
    "address of the hash table": lambda d: put(d, entry_of(d, 0x6FFFFEF5) + 8, 2**40),
    "no hash table": lambda d: put(d, entry_of(d, 0x6FFFFEF5), 0x6FFFFEF0),
    "address of relocations": lambda d: put(d, entry_of(d, 7) + 8, 8),
    "size of relocations": lambda d: put(d, entry_of(d, 8) + 8, 2**40),
    "size of a relocation": lambda d: put(d, entry_of(d, 9) + 8, 7),
    "number of relative relocations": lambda d: put(d, entry_of(d, 0x6FFFFFF9) + 8, 2**30),
    "no size of relocations": lambda d: put(d, entry_of(d, 8), 0x6FFFFEF0),
    "kind of relocations": lambda d: put(d, entry_of(d, 20) + 8, 17),
    "address of initialisers": lambda d: put(d, entry_of(d, 25) + 8, 0),
    "number of initialisers": lambda d: put(d, entry_of(d, 27) + 8, 2**20),
    "address of the first initialiser": lambda d: put(d, entry_of(d, 12) + 8, 5),
    "a needed library without a name": lambda d: put(d, entry_of(d, 1) + 8, 2**40),
    "an early end of the dynamic section": lambda d: put(d, entry_of(d, 7), 0),
}


@pytest.fixture(scope="module")
def contents(compile_library: Compile) -> bytes:
    return compile_library("probe").read_bytes()


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_headers_are_a_named_error(contents: bytes, tmp_path: Path, damage: str) -> None:
    data = bytearray(contents)
    DAMAGES[damage](data)
    path = tmp_path / "libdamaged.so"
    path.write_bytes(data)
    with pytest.raises(PluginError) as caught:
        PluginRegistry().load_library(path)
    assert str(path) in str(caught.value)


def test_a_library_that_needs_itself_is_loaded(compile_library: Compile, tmp_path: Path) -> None:
    """A cycle of needed libraries is none for the linker."""
    compile_library("probe", f"-Wl,-soname,libcycle.so,-rpath,{tmp_path}")
    first = compile_library("echo", "-Wl,-soname,libcycle.so")
    (tmp_path / "libcycle.so").write_bytes(first.read_bytes())
    again = compile_library(
        "echo", f"-L{tmp_path}", "-Wl,--no-as-needed", "-lcycle", f"-Wl,-soname,libcycle.so,-rpath,{tmp_path}"
    )
    (tmp_path / "libcycle.so").write_bytes(again.read_bytes())
    library = PluginRegistry().load_library(tmp_path / "libcycle.so")
    assert library.creators


def run_search(library: Path, folder: Path, *numbers: int) -> dict[str, int]:
    command = [sys.executable, str(PROGRAM), str(library), str(folder), *map(str, numbers)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    *found, counts = map(json.loads, done.stdout.splitlines())
    assert found == []
    result: dict[str, int] = counts
    return result


def test_random_damage_of_headers_ends_no_process(compile_library: Compile, tmp_path: Path) -> None:
    counts = run_search(compile_library("future"), tmp_path, 40, 5, 40)
    assert sum(counts.values()) == 80
    assert counts["refused"] > 40


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_much_damage_of_headers_ends_no_process(compile_library: Compile, tmp_path: Path) -> None:
    counts = run_search(compile_library("probe"), tmp_path, 1000, 6, 1500)
    assert sum(counts.values()) == 2500


def test_libraries_of_the_system_are_valid() -> None:
    """Files of several linkers: none of them may be refused."""
    refused, count = [], 0
    for folder in SYSTEM_FOLDERS:
        for path in sorted(folder.rglob("*.so*"))[:400]:
            if path.is_symlink() or not path.is_file() or path.read_bytes()[:4] != b"\x7fELF":
                continue
            count += 1
            try:
                require_valid(path, str(path))
            except DovetailError as error:
                refused.append(str(error))
    assert refused == []
    assert count > 20
