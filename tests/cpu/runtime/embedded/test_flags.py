"""``dovetail runtime-flags``: what it prints, and what it says where a program cannot be built."""

from __future__ import annotations

import json
import sys
import sysconfig
from pathlib import Path

import pytest

from dovetail.cli import main
from tests.support.native_libraries import INCLUDE
from tests.support.native_programs import find_flags


def test_flags_name_headers_interpreter_and_library(capsys: pytest.CaptureFixture[str]) -> None:
    find_flags()  # skips where this Python has no library
    assert main(["runtime-flags", "--compile"]) == 0
    words = capsys.readouterr().out.split()
    assert {"-std=c++17", f"-I{INCLUDE}", f'-DDOVETAIL_PYTHON="{sys.executable}"'} <= set(words)
    assert main(["runtime-flags", "--link", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["compile"] == []
    assert f"-lpython{sysconfig.get_config_var('LDVERSION')}" in document["link"]


def test_missing_headers_and_libraries_are_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"include": str(tmp_path)})
    assert main(["runtime-flags", "--compile"]) == 6
    assert f"{tmp_path / 'Python.h'}: the headers of Python are not installed" in capsys.readouterr().err
    variables = {"LDVERSION": "3.x", "Py_ENABLE_SHARED": 1, "LIBDIR": str(tmp_path), "LDLIBRARY": "libpython3.x.so"}
    monkeypatch.setattr(sysconfig, "get_config_vars", lambda: variables)
    assert main(["runtime-flags", "--link"]) == 6
    assert "libpython3.x.so: the library of Python is not installed" in capsys.readouterr().err


def test_a_static_library_comes_with_its_symbols(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "libpython3.x.a").touch()
    names = {"LDVERSION": "3.x", "LIBPL": str(tmp_path), "LIBRARY": "libpython3.x.a", "LIBS": "-ldl", "SYSLIBS": "-lm"}
    monkeypatch.setattr(sysconfig, "get_config_vars", lambda: names)
    assert main(["runtime-flags", "--link"]) == 0
    assert capsys.readouterr().out.split() == [f"-L{tmp_path}", "-lpython3.x", "-rdynamic", "-ldl", "-lm", "-lpthread"]


def test_a_path_with_a_space_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = tmp_path / "my python"
    folder.mkdir()
    (folder / "Python.h").touch()
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"include": str(folder)})
    assert main(["runtime-flags", "--compile"]) == 1
    assert "a path has a space in it" in capsys.readouterr().err
    assert main(["runtime-flags", "--compile", "--json"]) == 0
