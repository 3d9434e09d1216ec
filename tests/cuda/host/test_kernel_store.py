"""Files of the kernel store in a folder that others write to: only regular files are read and replaced."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from dovetail_cuda.compile.request import CompiledCode, KernelRequest
from dovetail_cuda.compile.store import KernelStore, read_record
from tests.support.odd_files import ODD_KINDS, make_odd_file

REQUEST = KernelRequest(function="f", text="", signature={"p": "*fp32"}, capability=90)
CODE = CompiledCode(code=b"right", name="f", num_warps=4, shared_bytes=0)
PLANTED = CompiledCode(code=b"planted", name="f", num_warps=4, shared_bytes=0)


def _store(folder: Path) -> tuple[KernelStore, list[Any]]:
    compiled: list[Any] = []

    def compile_kernel(request: KernelRequest) -> CompiledCode:
        compiled.append(request)
        return CODE

    return KernelStore(folder, compile_kernel), compiled


def _place(folder: Path) -> Path:
    return folder / f"{REQUEST.make_key()}.kernel"


@pytest.mark.timeout(30)
@pytest.mark.parametrize("kind", ODD_KINDS)
def test_an_odd_file_in_the_place_of_a_kernel_is_neither_read_nor_replaced(kind: str, tmp_path: Path) -> None:
    planted, _ = tmp_path / "elsewhere.kernel", (tmp_path / "store").mkdir()
    other = KernelStore(tmp_path / "other", lambda request: PLANTED)
    other.get(REQUEST)
    planted.write_bytes(_place(tmp_path / "other").read_bytes())
    content = planted.read_bytes()
    place = _place(tmp_path / "store")
    make_odd_file(place, kind, planted)
    before = os.lstat(place)
    store, compiled = _store(tmp_path / "store")
    assert [store.get(REQUEST) for _ in range(2)] == [CODE, CODE]
    assert len(compiled) == 2
    assert os.lstat(place)[:3] == before[:3]
    assert planted.read_bytes() == content
    assert [path.name for path in (tmp_path / "store").iterdir()] == [place.name]


@pytest.mark.timeout(30)
def test_a_huge_sparse_file_is_not_read_into_memory(tmp_path: Path) -> None:
    place = _place(tmp_path)
    with place.open("wb") as file:
        file.truncate(1 << 42)
    assert read_record(place, CompiledCode) is None
    store, compiled = _store(tmp_path)
    assert [store.get(REQUEST) for _ in range(2)] == [CODE, CODE]
    assert len(compiled) == 1


def test_a_kernel_is_compiled_once(tmp_path: Path) -> None:
    store, compiled = _store(tmp_path / "store")
    assert [store.get(REQUEST) for _ in range(3)] == [CODE] * 3
    assert len(compiled) == 1
    assert len(list((tmp_path / "store").iterdir())) == 1
