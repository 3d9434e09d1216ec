"""The library that is written without a compiler: well formed for both processors, and loaded on this one."""

from __future__ import annotations

import ctypes
import platform
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from dovetail.errors import ResourceError
from onnxruntime_ep_dovetail.library.elf import build_library, write_library
from onnxruntime_ep_dovetail.library.machine_code import PROCESSORS

NAMES = {
    *("CreateEpFactories", "RegisterCustomOps", "ReleaseEpFactory", "dovetail_ep_noop"),
    *("dovetail_ep_create", "dovetail_ep_custom_ops", "dovetail_ep_release"),
}
CREATE_AT = 0x340
"""Where the code of CreateEpFactories begins, which is the first."""
MACHINES = sorted(PROCESSORS)
runs_here = pytest.mark.skipif(
    platform.system() != "Linux" or platform.machine() not in PROCESSORS,
    reason="the library is not written for this system",
)


def _segments(content: bytes) -> list[tuple[int, ...]]:
    start, count = struct.unpack_from("<Q", content, 32)[0], struct.unpack_from("<H", content, 56)[0]
    return [struct.unpack_from("<IIQQQQQQ", content, start + 56 * i) for i in range(count)]


@pytest.mark.parametrize("machine", MACHINES)
def test_the_header_names_the_processor(machine: str) -> None:
    content = build_library(machine)
    assert content[:6] == b"\x7fELF\x02\x01"
    assert struct.unpack_from("<HH", content, 16) == (3, {"x86_64": 62, "aarch64": 183}[machine])


@pytest.mark.parametrize("machine", MACHINES)
def test_segments_lie_in_the_file_and_no_page_is_both_written_and_run(machine: str) -> None:
    content = build_library(machine)
    pages: dict[int, int] = {}
    for kind, rights, offset, address, _, num_bytes, memory_bytes, alignment in _segments(content):
        assert offset + num_bytes <= len(content)
        assert num_bytes == memory_bytes
        assert (address - offset) % alignment == 0
        assert rights & 3 != 3
        if kind == 1:
            for page in range(address >> 16, (address + num_bytes >> 16) + 1):
                assert pages.setdefault(page, rights) == rights
    assert len(content) < 2048


@pytest.mark.parametrize("machine", MACHINES)
def test_readelf_reads_it(machine: str, tmp_path: Path) -> None:
    if shutil.which("readelf") is None:
        pytest.skip("there is no readelf here")
    path = tmp_path / "library.so"
    write_library(path, machine)
    command = ["readelf", "--all", "--use-dynamic", "--wide", str(path)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert {line.split()[-1] for line in result.stdout.splitlines() if " GLOBAL " in line} == NAMES
    assert "rror" not in result.stderr
    assert {line for line in result.stderr.splitlines() if "arning" in line} == set()


def test_the_instructions_for_aarch64() -> None:
    """The whole of CreateEpFactories, word by word, as an assembler encodes it at its address."""
    content = build_library("aarch64")
    words = struct.unpack_from("<16I", content, CREATE_AT)
    page, load = words[0], words[1]
    assert page & 0x9F00001F == 0x90000010  # adrp x16
    distance = ((page >> 5 & 0x7FFFF) << 2 | page >> 29 & 3) << 12
    slot = distance + (load >> 10 & 0xFFF) * 8
    (dynamic,) = (segment for segment in _segments(content) if segment[0] == 2)
    assert slot == dynamic[3] + dynamic[5]  # the first slot follows the dynamic table
    assert load & 0xFFC003FF == 0xF9400210  # ldr x16, [x16, #]
    assert words[2:4] == (0xB4000050, 0xD61F0200)  # cbz x16, +8; br x16
    assert words[4:13] == (
        0xF90000BF,  # str xzr, [x5]
        0xA9BF7BFD,  # stp x29, x30, [sp, #-16]!
        0xF9400030,  # ldr x16, [x1]
        0x52800020,  # mov w0, #1
        0xD63F0200,  # blr x16
        0xA8C17BFD,  # ldp x29, x30, [sp], #16
        0xB40000A0,  # cbz x0, +20
        0xF9400010,  # ldr x16, [x0]
        0x52800020,  # mov w0, #1
    )
    message = words[13]
    assert message & 0x9F00001F == 0x10000001  # adr x1
    offset = (message >> 5 & 0x7FFFF) << 2 | message >> 29 & 3
    text = CREATE_AT + 13 * 4 + offset - (1 << 21 if offset >> 20 else 0)
    assert content[text : text + 9] == b"Dovetail:"
    assert words[14:] == (0xD61F0200, 0xD65F03C0)  # br x16; ret


def test_other_systems_are_told_what_to_do() -> None:
    with pytest.raises(ResourceError, match=r"expected Linux on x86_64 or aarch64, got .* on riscv64"):
        build_library("riscv64")


@pytest.fixture
def library(tmp_path: Path) -> ctypes.CDLL:
    path = tmp_path / "library.so"
    write_library(path)
    return ctypes.CDLL(str(path))


Create = ctypes.CFUNCTYPE(
    ctypes.c_void_p,
    ctypes.c_char_p,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_void_p,
)
CustomOps = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


@runs_here
def test_the_entry_points_jump_through_their_slots(library: ctypes.CDLL) -> None:
    seen: list[object] = []

    @Create
    def create(*arguments: object) -> int:
        seen.append(arguments)
        return 11

    @ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
    def release(factory: int) -> int:
        seen.append(factory)
        return 12

    ctypes.c_void_p.in_dll(library, "dovetail_ep_create").value = ctypes.cast(create, ctypes.c_void_p).value
    ctypes.c_void_p.in_dll(library, "dovetail_ep_release").value = ctypes.cast(release, ctypes.c_void_p).value

    @CustomOps
    def add_custom_ops(*arguments: object) -> int:
        seen.append(arguments)
        return 13

    ctypes.c_void_p.in_dll(library, "dovetail_ep_custom_ops").value = ctypes.cast(add_custom_ops, ctypes.c_void_p).value
    entry = Create(("CreateEpFactories", library))
    assert entry(b"name", 2, 3, 4, 5, 6) == 11
    library.ReleaseEpFactory.restype = ctypes.c_void_p
    assert library.ReleaseEpFactory(ctypes.c_void_p(7)) == 12
    assert CustomOps(("RegisterCustomOps", library))(8, 9) == 13
    assert seen == [(b"name", 2, 3, 4, 5, 6), 7, (8, 9)]


@runs_here
def test_empty_slots_give_a_status_that_says_what_is_missing(library: ctypes.CDLL) -> None:
    asked: list[object] = []

    @ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)
    def create_status(code: int, text: bytes) -> int:
        asked.append((code, text.decode()))
        return 42

    table = (ctypes.c_void_p * 1)(ctypes.cast(create_status, ctypes.c_void_p).value)
    versions = iter([ctypes.addressof(table), None, ctypes.addressof(table), None])

    @ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)
    def get_api(version: int) -> int | None:
        asked.append(version)
        return next(versions)

    base = (ctypes.c_void_p * 2)(ctypes.cast(get_api, ctypes.c_void_p).value)
    count = ctypes.c_size_t(9)
    entry = Create(("CreateEpFactories", library))
    assert entry(b"name", ctypes.addressof(base), None, None, 4, ctypes.addressof(count)) == 42
    assert count.value == 0
    assert asked[0] == 1
    assert asked[1][0] == 1  # type: ignore[index]
    assert "call onnxruntime_ep_dovetail.get_library_path()" in asked[1][1]  # type: ignore[index]
    assert entry(b"name", ctypes.addressof(base), None, None, 4, ctypes.addressof(count)) is None
    custom_ops = CustomOps(("RegisterCustomOps", library))
    assert [custom_ops(None, ctypes.addressof(base)) for _ in range(2)] == [42, None]
    assert asked[4] == asked[1]
    library.ReleaseEpFactory.restype = ctypes.c_void_p
    assert library.ReleaseEpFactory(ctypes.c_void_p(7)) is None


@runs_here
def test_the_no_op_returns_0(library: ctypes.CDLL) -> None:
    library.dovetail_ep_noop.restype = ctypes.c_void_p
    assert library.dovetail_ep_noop(1, 2, 3) is None
