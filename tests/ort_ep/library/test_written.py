"""Where the written library is kept: a private folder, whole files, and nothing of another user's."""

from __future__ import annotations

import ctypes
import os
import stat
import threading
from pathlib import Path

import pytest

import onnxruntime_ep_dovetail.library as library
from dovetail.errors import ResourceError
from onnxruntime_ep_dovetail.library import describe, fallback, find_library, load_compute, written
from onnxruntime_ep_dovetail.library.elf import build_library
from onnxruntime_ep_dovetail.library.written import place_library


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "dovetail"


def test_it_is_written_once_and_only_its_user_can_change_it(cache: Path) -> None:
    path = place_library()
    assert path.parent == cache
    assert path.read_bytes() == build_library()
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    before = path.stat().st_ino
    assert place_library() == path
    assert path.stat().st_ino == before
    assert [entry.name for entry in cache.iterdir()] == [path.name]


@pytest.mark.parametrize("damage", [b"", b"not a library", build_library()[:-1], build_library() + b"\0"])
def test_other_content_is_replaced(damage: bytes) -> None:
    path = place_library()
    path.unlink()
    path.write_bytes(damage)
    assert place_library() == path
    assert path.read_bytes() == build_library()


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    path = place_library()
    elsewhere = tmp_path / "elsewhere.so"
    elsewhere.write_bytes(build_library())
    path.unlink()
    path.symlink_to(elsewhere)
    assert place_library() == path
    assert not path.is_symlink()


def test_a_file_that_others_can_write_is_replaced() -> None:
    path = place_library()
    path.chmod(0o777)
    before = path.stat().st_ino
    place_library()
    assert path.stat().st_ino != before
    assert stat.S_IMODE(path.stat().st_mode) == 0o700


@pytest.mark.parametrize("trap", ["open", "link", "file"])
def test_a_folder_that_is_not_private_is_passed_over(cache: Path, tmp_path: Path, trap: str) -> None:
    cache.parent.mkdir()
    if trap == "open":
        cache.mkdir()
        cache.chmod(0o777)
    elif trap == "link":
        (tmp_path / "other").mkdir(mode=0o700)
        cache.symlink_to(tmp_path / "other")
    else:
        cache.write_text("in the way")
    path = place_library()
    assert path.parent != cache
    assert path.read_bytes() == build_library()
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_nowhere_to_write_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(written, "_folders", lambda: iter([tmp_path / "file" / "folder"]))
    with pytest.raises(ResourceError, match="cannot be written anywhere") as caught:
        place_library()
    assert "XDG_CACHE_HOME" in str(caught.value)
    assert str(tmp_path / "file" / "folder") in str(caught.value)


def test_several_at_once_all_find_a_whole_file() -> None:
    found: list[bytes] = []

    def work() -> None:
        found.append(place_library().read_bytes())

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert found == [build_library()] * 8


def test_the_variable_chooses_what_needs_no_compiler(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    monkeypatch.setenv("DOVETAIL_EP_NATIVE", "0")
    assert find_library().parent == cache
    assert load_compute() is fallback
    assert describe().count("asked for by DOVETAIL_EP_NATIVE=0") == 2


def test_the_compiled_parts_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DOVETAIL_EP_NATIVE", raising=False)
    compiled = Path(library.__file__).parent / library.LIBRARY_NAME
    if not compiled.is_file():
        pytest.skip("the package was installed without a C compiler")
    assert find_library() == compiled
    assert getattr(load_compute(), "__name__", "").endswith("_compute")
    assert f"library: {compiled} (compiled)\ncompute: _compute (" in describe()


def test_both_libraries_export_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    paths = {place_library(), find_library()}
    names = ("CreateEpFactories", "ReleaseEpFactory", "dovetail_ep_noop")
    for path in paths:
        loaded = ctypes.CDLL(os.fspath(path))
        assert all(hasattr(loaded, name) for name in names)
        for slot in ("dovetail_ep_create", "dovetail_ep_release"):
            ctypes.c_void_p.in_dll(loaded, slot)
