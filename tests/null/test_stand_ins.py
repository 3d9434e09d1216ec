"""Modules that plugin files lack, and packages that stand in for them."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from dovetail import stand_ins
from dovetail.errors import PluginError
from dovetail.plugin.check.locate import locate
from dovetail.plugin.registry import PluginRegistry

PLUGIN = "import absent_engine\n\n\ndef get_creators():\n    return absent_engine.creators\n"
STAND_IN = """
import sys, types

calls = 0


def install():
    global calls
    calls += 1
    sys.modules["absent_engine"] = types.SimpleNamespace(creators=[])
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package that stands in for a module that nobody has."""
    (tmp_path / "stands_in.py").write_text(STAND_IN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(stand_ins, "_STAND_INS", {"absent_engine": "stands_in"})
    monkeypatch.delitem(sys.modules, "stands_in", raising=False)
    monkeypatch.setitem(sys.modules, "absent_engine", None)
    monkeypatch.delitem(sys.modules, "absent_engine")
    return "stands_in"


def test_a_file_is_read_again_with_the_module_in_place(tmp_path: Path, package: str) -> None:
    path = tmp_path / "plugin_file.py"
    path.write_text(PLUGIN)
    PluginRegistry().load_library(path)
    assert importlib.import_module(package).calls == 1


def test_without_the_package_the_message_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stand_ins, "_STAND_INS", {"absent_engine": "absent_package"})
    path = tmp_path / "plugin_file.py"
    path.write_text(PLUGIN)
    for read in (PluginRegistry().load_library, lambda place: locate(str(place))):
        with pytest.raises(PluginError, match=r"No module named 'absent_engine'(?s:.*)pip install absent-package"):
            read(path)


def test_other_modules_are_missed_as_always(tmp_path: Path, package: str) -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        stand_ins.with_stand_ins(lambda: importlib.import_module("no_such_module"))
    assert package not in sys.modules
