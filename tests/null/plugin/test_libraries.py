"""Plugin libraries: from disk and from bytes, all or nothing, private modules, attributed errors."""

from __future__ import annotations

import gc
import sys
import traceback
import weakref
from pathlib import Path
from textwrap import dedent

import pytest

from dovetail.errors import PlanCorruptError, PluginError
from dovetail.loggers import ILogger, Severity
from dovetail.plugin.libraries import load_packed_library, pack_library
from dovetail.plugin.registry import PluginRegistry, get_plugin_registry

CREATORS = """
import dovetail

class {name}(dovetail.IPluginCreatorV3One):
    def __init__(self):
        super().__init__()
        self.name = "{name}"
        self.plugin_version = "1"
        self.plugin_namespace = ""
        self.field_names = dovetail.PluginFieldCollection([])

    def create_plugin(self, name, field_collection, phase):
        raise ValueError("from the library")
"""


class Lines(ILogger):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def log(self, severity: Severity, msg: str) -> None:
        self.lines.append(f"{severity.name} {msg}")


@pytest.fixture
def registry() -> PluginRegistry:
    return PluginRegistry(parent=get_plugin_registry(), logger=Lines())


def write(path: Path, *parts: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(dedent(part) for part in parts), encoding="utf-8")
    return path


def creators(*names: str) -> str:
    listed = ", ".join(f"{name}()" for name in names)
    return "\n".join(CREATORS.format(name=name) for name in names) + f"\ndef get_creators():\n    return [{listed}]\n"


def library_modules() -> list[str]:
    return [name for name in sys.modules if name.startswith("_dovetail_library_")]


@pytest.fixture
def package(tmp_path: Path) -> Path:
    root = tmp_path / "mylib"
    write(root / "ops" / "__init__.py", "from .pad import LibPad")
    write(root / "ops" / "pad.py", CREATORS.format(name="LibPad"), "from ..constants import SIZE")
    write(root / "constants.py", "SIZE = 3")
    (root / "table.bin").write_bytes(b"\x00\xff")
    write(
        root / "__init__.py",
        """
        import pkgutil
        from .ops import LibPad
        TABLE = pkgutil.get_data(__name__, "table.bin")

        def get_creators():
            from .constants import SIZE
            assert SIZE == 3
            return [LibPad()]
        """,
    )
    return root


def test_a_file_is_loaded_and_deregistered(tmp_path: Path, registry: PluginRegistry) -> None:
    before = library_modules()
    path = write(tmp_path / "pads.py", creators("LibPad", "LibCrop"))
    library = registry.load_library(str(path))
    assert (library.name, library.path) == ("pads", str(path))
    assert [creator.name for creator in library.creators] == ["LibPad", "LibCrop"]
    assert registry.get_creator("LibPad", "1") is library.creators[0]
    assert registry.libraries == [library]
    assert len(library_modules()) == len(before) + 1
    assert "pads" not in sys.modules
    assert registry.deregister_library(library)
    assert registry.find_creator("LibPad", "1") is None
    assert registry.libraries == []
    assert set(library_modules()) <= set(before)  # the collector may have taken others meanwhile
    with pytest.raises(PluginError, match="not loaded in this registry"):
        registry.deregister_library(library)


def test_a_package_is_loaded_with_relative_imports_and_data(package: Path, registry: PluginRegistry) -> None:
    before = library_modules()
    library = registry.load_library(package)
    assert registry.get_creator("LibPad", "1") is library.creators[0]
    assert sys.modules[library.module_name].TABLE == b"\x00\xff"
    assert "mylib" not in sys.modules
    registry.deregister_library(library)
    assert set(library_modules()) <= set(before)  # the collector may have taken others meanwhile


def test_two_registries_load_the_same_file_independently(tmp_path: Path) -> None:
    path = write(tmp_path / "pads.py", creators("LibPad"))
    first, second = PluginRegistry(), PluginRegistry()
    one, two = first.load_library(path), second.load_library(path)
    assert type(one.creators[0]) is not type(two.creators[0])
    first.deregister_library(one)
    assert second.get_creator("LibPad", "1") is two.creators[0]
    second.deregister_library(two)


def test_a_name_in_use_is_not_clobbered(tmp_path: Path, registry: PluginRegistry) -> None:
    import json

    path = write(tmp_path / "json.py", creators("LibPad"))
    registry.load_library(path)
    assert sys.modules["json"] is json


def test_any_known_creator_refuses_the_whole_library(tmp_path: Path, registry: PluginRegistry) -> None:
    registry.load_library(write(tmp_path / "one.py", creators("LibPad")))
    before = library_modules()
    with pytest.raises(PluginError, match="'LibPad' version '1' is already registered") as caught:
        registry.load_library(write(tmp_path / "two.py", creators("LibCrop", "LibPad")))
    assert "one.py" in str(caught.value)
    assert "two.py" in str(caught.value)
    assert registry.find_creator("LibCrop", "1") is None
    assert len(registry.libraries) == 1
    assert set(library_modules()) <= set(before)  # the collector may have taken others meanwhile


def test_a_creator_known_only_to_the_parent_is_shadowed(tmp_path: Path) -> None:
    path = write(tmp_path / "pads.py", creators("LibPad"))
    parent = PluginRegistry()
    outer = parent.load_library(path)
    child = PluginRegistry(parent=parent)
    inner = child.load_library(path)
    assert child.get_creator("LibPad", "1") is inner.creators[0]
    assert parent.get_creator("LibPad", "1") is outer.creators[0]


def test_two_creators_of_one_name_in_a_library_are_refused(tmp_path: Path, registry: PluginRegistry) -> None:
    path = write(
        tmp_path / "pads.py", CREATORS.format(name="LibPad"), "def get_creators(): return [LibPad(), LibPad()]"
    )
    with pytest.raises(PluginError, match="two creators for plugin 'LibPad'"):
        registry.load_library(path)
    assert registry.all_creators == []


def test_static_registrations_go_to_the_loading_registry(tmp_path: Path, registry: PluginRegistry) -> None:
    path = write(
        tmp_path / "static.py",
        CREATORS.format(name="LibStatic").replace("class", "@dovetail.register_plugin(namespace='lib')\nclass"),
        """
        @dovetail.layer("lib::twice")
        def twice(x):
            return x * 2
        """,
    )
    library = registry.load_library(path)
    assert [creator.name for creator in library.creators] == ["LibStatic", "twice"]
    assert registry.get_creator("LibStatic", "1", "lib") is library.creators[0]
    assert get_plugin_registry().find_creator("LibStatic", "1", "lib") is None
    registry.deregister_library(library)
    assert registry.find_creator("twice", "1", "lib") is None


def test_a_creator_both_decorated_and_returned_counts_once(tmp_path: Path, registry: PluginRegistry) -> None:
    source = creators("LibPad").replace("class", "@dovetail.register_plugin\nclass")
    library = registry.load_library(write(tmp_path / "both.py", source))
    assert len(library.creators) == 1


def test_the_logger_finder_gives_the_registrys_logger(tmp_path: Path, registry: PluginRegistry) -> None:
    path = write(
        tmp_path / "logs.py",
        creators("LibPad"),
        """
        def set_logger_finder(finder):
            logger = finder.find_logger()
            logger.log(dovetail.Logger.INFO, "hello from the library")
        """,
    )
    registry.load_library(path)
    assert registry.logger.lines == ["INFO hello from the library"]  # type: ignore[attr-defined]


def test_the_old_entry_point_is_accepted_with_a_line_in_the_log(tmp_path: Path, registry: PluginRegistry) -> None:
    path = write(tmp_path / "old.py", creators("LibPad").replace("get_creators", "get_plugin_creators"))
    assert registry.load_library(path).creators[0].name == "LibPad"
    (line,) = registry.logger.lines  # type: ignore[attr-defined]
    assert "get_plugin_creators is an old name" in line


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("x = 1\ny = 1 / 0\n", r"bad\.py:2: the library raised ZeroDivisionError"),
        ("x = 1\n\ndef broken(:\n", r"bad\.py:3: the library raised SyntaxError"),
        ("import sys\nsys.exit(3)\n", r"bad\.py:2: the library raised SystemExit: 3"),
        ("def get_creators():\n    raise KeyError('k')\n", r"bad\.py:2: the library raised KeyError"),
        ("x = 1\n", "the library brings no creators"),
        ("get_creators = 3\n", "get_creators is not a function"),
        ("def get_creators(): return None\n", r"get_creators\(\) returned no list"),
        ("def get_creators(): return [object()]\n", "name cannot be read"),
        ("def set_logger_finder(f): raise OSError('no log')\n", r"bad\.py:1: the library raised OSError"),
        ("import helper_beside\n", "from . import helper_beside"),
        ("import no_such_package_anywhere\n", "install the package that has 'no_such_package_anywhere'"),
    ],
)
def test_a_broken_library_is_named_with_its_line(
    tmp_path: Path, registry: PluginRegistry, source: str, words: str
) -> None:
    before = library_modules()
    write(tmp_path / "helper_beside.py", "")
    path = tmp_path / "bad.py"
    path.write_text(source, encoding="utf-8")
    with pytest.raises(PluginError, match=words):
        registry.load_library(path)
    assert registry.all_creators == []
    assert registry.libraries == []
    assert set(library_modules()) <= set(before)  # the collector may have taken others meanwhile


def test_a_line_in_a_submodule_is_named(package: Path, registry: PluginRegistry) -> None:
    write(package / "ops" / "pad.py", "x = 1\nraise RuntimeError('deep')")
    with pytest.raises(PluginError, match=r"pad\.py:2: the library raised RuntimeError: deep"):
        registry.load_library(package)
    assert not [name for name in library_modules() if "mylib" in name]


@pytest.mark.parametrize("name", ["plugin.so", "plugin.so.1", "plugin.dll", "plugin.dylib", "plugin.pyd"])
def test_a_shared_library_that_is_none_is_refused(tmp_path: Path, registry: PluginRegistry, name: str) -> None:
    path = tmp_path / name
    contents = {b"\x7fELF": "no plugin library", b"\x7fELF dovetail_plugin_abi": "the library cannot be loaded"}
    for content, words in contents.items():
        path.write_bytes(content)
        with pytest.raises(PluginError, match=words):
            registry.load_library(path)


def test_what_is_no_library_is_refused(tmp_path: Path, registry: PluginRegistry) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("x")
    for name, words in (("gone.py", "no such"), ("empty", "no such"), ("notes.txt", "not a plugin library")):
        with pytest.raises(PluginError, match=words):
            registry.load_library(tmp_path / name)


def test_close_takes_the_libraries_along(tmp_path: Path, registry: PluginRegistry) -> None:
    before = library_modules()
    registry.load_library(write(tmp_path / "pads.py", creators("LibPad")))
    registry.close()
    assert set(library_modules()) <= set(before)  # the collector may have taken others meanwhile


# carried as bytes


def test_a_packed_file_is_loaded_from_memory(tmp_path: Path, registry: PluginRegistry) -> None:
    path = write(tmp_path / "pads.py", creators("LibPad"))
    payload = pack_library(path)
    path.unlink()
    before = library_modules()
    library = load_packed_library("pads", payload, registry)
    creator = registry.get_creator("LibPad", "1")
    with pytest.raises(ValueError, match="from the library") as caught:
        creator.create_plugin("x", [], 0)
    frame = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert frame.filename == "<plugin library pads>/pads.py"
    assert frame.line == 'raise ValueError("from the library")'
    registry.deregister_library(library)
    assert set(library_modules()) <= set(before)  # the collector may have taken others meanwhile
    assert not [finder for finder in sys.meta_path if "_Finder" in type(finder).__name__]


def test_a_single_file_may_be_called_anything(tmp_path: Path, registry: PluginRegistry) -> None:
    path = write(tmp_path / "my-pads v2.py", creators("LibPad"))
    registry.deregister_library(registry.load_library(path))
    library = load_packed_library("my-pads v2", pack_library(path), registry)
    assert library.module_name.isidentifier()
    registry.close()


def test_a_packed_package_is_loaded_from_memory(package: Path, registry: PluginRegistry) -> None:
    payload = pack_library(package)
    for file in package.rglob("*.py"):
        file.unlink()
    library = load_packed_library("mylib", payload, registry)
    assert registry.get_creator("LibPad", "1") is library.creators[0]
    assert sys.modules[library.module_name].TABLE == b"\x00\xff"
    with pytest.raises(FileNotFoundError):
        sys.modules[library.module_name].pkgutil.get_data(library.module_name, "gone.bin")
    with pytest.raises(ModuleNotFoundError):
        __import__(f"{library.module_name}.gone")
    registry.deregister_library(library)


def test_two_engines_can_carry_the_same_library(tmp_path: Path) -> None:
    payload = pack_library(write(tmp_path / "pads.py", creators("LibPad")))
    registries = [PluginRegistry(parent=get_plugin_registry()) for _ in range(2)]
    libraries = [load_packed_library("pads", payload, registry) for registry in registries]
    registries[0].close()
    assert registries[1].get_creator("LibPad", "1") is libraries[1].creators[0]
    assert get_plugin_registry().find_creator("LibPad", "1") is None
    registries[1].close()


def test_modules_leave_with_their_registry(tmp_path: Path) -> None:
    path = write(tmp_path / "pads.py", creators("LibPad"))
    gc.collect()  # what earlier tests left must not go in the middle of the counting
    before, finalizers = library_modules(), len(weakref.finalize._registry)  # type: ignore[attr-defined]
    registry = PluginRegistry()
    registry.load_library(path)
    load_packed_library("more", pack_library(write(tmp_path / "more.py", creators("LibCrop"))), registry)
    for _ in range(3):
        registry.deregister_library(registry.load_library(write(tmp_path / "third.py", creators("LibThird"))))
    assert len(library_modules()) == len(before) + 2
    assert len(weakref.finalize._registry) == finalizers + 2  # type: ignore[attr-defined]
    del registry
    gc.collect()
    assert set(library_modules()) <= set(before)  # the collector may have taken others meanwhile


def test_a_carried_quick_layer_is_the_same_layer(tmp_path: Path, registry: PluginRegistry) -> None:
    path = write(
        tmp_path / "quick.py", "import dovetail\n@dovetail.layer('lib::twice')\ndef twice(x):\n    return x * 2\n"
    )
    on_disk = PluginRegistry()
    on_disk.load_library(path)
    payload = pack_library(path)
    path.unlink()
    load_packed_library("quick", payload, registry)
    ids = [r.get_creator("twice", "1", "lib").create_plugin("x", [], 0).timing_cache_id for r in (on_disk, registry)]
    assert ids[0] == ids[1]
    registry.close()


def test_packing_is_deterministic_and_leaves_byte_code_out(package: Path) -> None:
    first = pack_library(package)
    write(package / "__pycache__" / "x.cpython-311.pyc", "junk")
    write(package / ".hidden" / "secret.py", "x = 1")
    write(package / ".env", "x = 1")
    assert pack_library(package) == first
    assert b"secret" not in first


def test_a_declared_encoding_is_honoured(tmp_path: Path, registry: PluginRegistry) -> None:
    path = tmp_path / "latin.py"
    text = "# -*- coding: latin-1 -*-\nNAME = 'é'\n" + creators("LibPad")
    path.write_bytes(text.encode("latin-1"))
    library = load_packed_library("latin", pack_library(path), registry)
    assert sys.modules[library.module_name].NAME == "é"
    registry.close()


def test_what_cannot_be_carried_is_refused(tmp_path: Path, package: Path) -> None:
    with pytest.raises(PluginError, match="no such"):
        pack_library(tmp_path / "gone.py")
    (package / "_kernels.so").write_bytes(b"\x7fELF")
    with pytest.raises(PluginError, match="compiled modules"):
        pack_library(package)
    (package / "_kernels.so").unlink()
    (package / "__init__.py").unlink()
    with pytest.raises(PluginError, match="no __init__"):
        pack_library(package)
    write(package / "__init__.py", "x = 1")
    write(package / "not-a-module.py", "x = 1")
    with pytest.raises(PluginError, match="no module"):
        pack_library(package)
    undecodable = tmp_path / "raw.py"
    undecodable.write_bytes(b"x = '\xff'\n")
    with pytest.raises(PluginError, match="cannot be decoded"):
        pack_library(undecodable)


def test_a_broken_packed_library_is_named_with_its_line(tmp_path: Path, registry: PluginRegistry) -> None:
    payload = pack_library(write(tmp_path / "bad.py", "x = 1\ny = 1 / 0"))
    before = library_modules()
    with pytest.raises(PluginError, match=r"<plugin library bad>/bad\.py:2: the library raised ZeroDivisionError"):
        load_packed_library("bad", payload, registry)
    assert set(library_modules()) <= set(before)  # the collector may have taken others meanwhile
    assert registry.libraries == []


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (b"", "malformed"),
        (b"\x80\x04K\x01.", "malformed"),
        (b"[]", "malformed"),
        (b'{"type":"dovetail-library/2","is_package":false,"sources":{"a.py":""}}', "malformed"),
        (b'{"type":"dovetail-library/1","is_package":false,"sources":{"a.py":""},"more":1}', "malformed"),
        (b'{"type":"dovetail-library/1","is_package":false,"sources":{"a.py":3}}', "malformed"),
        (b'{"type":"dovetail-library/1","is_package":false,"sources":{}}', "exactly one source"),
        (b'{"type":"dovetail-library/1","is_package":false,"sources":{"a.py":"","b.py":""}}', "exactly one source"),
        (b'{"type":"dovetail-library/1","is_package":true,"sources":{"a.py":""}}', "no __init__"),
        (b'{"type":"dovetail-library/1","is_package":false,"sources":{"../a.py":""}}', "plain relative"),
        (b'{"type":"dovetail-library/1","is_package":false,"sources":{"/a.py":""}}', "plain relative"),
        (b'{"type":"dovetail-library/1","is_package":false,"sources":{"c:a.py":""}}', "plain relative"),
        (b'{"type":"dovetail-library/1","is_package":false,"sources":{"a\\\\b.py":""}}', "plain relative"),
        (b'{"type":"dovetail-library/1","is_package":false,"sources":{"a\\u0000.py":""}}', "plain relative"),
        (b'{"type":"dovetail-library/1","is_package":true,"sources":{"__init__.py":"","a-b.py":""}}', "no module"),
        (b'{"type":"dovetail-library/1","is_package":false,"sources":{"a.txt":""}}', "no module"),
        (
            b'{"type":"dovetail-library/1","is_package":true,"sources":{"__init__.py":""},"data":{"a/../../x":""}}',
            "plain relative",
        ),
        (
            b'{"type":"dovetail-library/1","is_package":true,"sources":{"__init__.py":""},"data":{"__init__.py":""}}',
            "names a file twice",
        ),
    ],
)
def test_a_hostile_payload_is_refused_before_anything_runs(
    registry: PluginRegistry, payload: bytes, words: str
) -> None:
    before = library_modules()
    with pytest.raises(PlanCorruptError, match=words):
        load_packed_library("evil", payload, registry)
    assert set(library_modules()) <= set(before)  # the collector may have taken others meanwhile


def test_payloads_are_bounded(registry: PluginRegistry, monkeypatch: pytest.MonkeyPatch, package: Path) -> None:
    payload = pack_library(package)
    monkeypatch.setattr("dovetail.plugin.carried.payload.MAX_FILES", 2)
    with pytest.raises(PlanCorruptError, match="too many files"):
        load_packed_library("big", payload, registry)
    monkeypatch.setattr("dovetail.plugin.carried.payload.MAX_PAYLOAD_BYTES", 10)
    with pytest.raises(PlanCorruptError, match="too large"):
        load_packed_library("big", payload, registry)
    with pytest.raises(PluginError, match="cannot be carried in a plan: a plugin library is too large"):
        pack_library(package)
