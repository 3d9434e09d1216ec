"""C++ plugin libraries: loading, where they log, what they register, what is refused, unloading."""

from __future__ import annotations

import ctypes
import gc
import os
import shutil
import subprocess
from pathlib import Path

import pytest

import dovetail as dt
from dovetail.cli import main
from dovetail.errors import ForeignLibraryError, PluginError
from dovetail.loggers import ILogger, Severity
from dovetail.plugin.registry import PluginRegistry, get_plugin_registry
from dovetail.plugin.safe import get_safe_plugin_registry
from tests.support.native_libraries import INCLUDE, SOURCES, VERSION_8, Compile


class Messages(ILogger):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def log(self, severity: Severity, msg: str) -> None:
        self.texts.append(f"{severity.name} {msg}")


@pytest.fixture
def registry() -> PluginRegistry:
    return PluginRegistry(logger=Messages())


def is_mapped(path: Path) -> bool:
    return str(path) in Path("/proc/self/maps").read_text(encoding="utf-8")


def test_a_library_is_loaded_logs_and_is_unloaded(compile_library: Compile, registry: PluginRegistry) -> None:
    path = compile_library("probe")
    library = registry.load_library(path)
    assert [creator.name for creator in library.creators] == ["Probe"]
    plugin = registry.get_creator("Probe", "1").create_plugin("p", dt.PluginFieldCollection(), dt.TensorRTPhase.BUILD)
    assert isinstance(registry.logger, Messages)
    assert registry.logger.texts == ["WARNING the finder is set", "WARNING made "]
    assert registry.deregister_library(library)
    assert registry.find_creator("Probe", "1") is None
    del library
    assert plugin.clone() is not plugin  # what a library made keeps working, and keeps it loaded
    assert is_mapped(path)
    del plugin
    gc.collect()
    assert not is_mapped(path)


@pytest.mark.parametrize("name", ["older", "quick", "implicit", "echo"])
def test_nothing_in_the_headers_keeps_a_library_loaded(
    compile_library: Compile, registry: PluginRegistry, name: str
) -> None:
    path = compile_library(name)
    assert registry.deregister_library(registry.load_library(path))
    gc.collect()
    assert not is_mapped(path)


def test_plugins_are_deleted_once(compile_library: Compile, registry: PluginRegistry) -> None:
    library = registry.load_library(compile_library("probe"))
    alive = ctypes.CDLL(library.path).probesAlive
    before = alive()
    plugin = library.creators[0].create_plugin("p", dt.PluginFieldCollection(), dt.TensorRTPhase.BUILD)
    twin = plugin.clone()
    runtime = twin.get_capability_interface(dt.PluginCapabilityType.RUNTIME)
    assert alive() == before + 2
    twin.destroy()
    twin.destroy()
    assert alive() == before + 1
    with pytest.raises(PluginError, match="setTactic was called after the plugin was destroyed"):
        runtime.set_tactic(1)
    del plugin
    assert alive() == before


def test_two_registries_load_one_file_and_one_of_them_twice_not(
    compile_library: Compile, registry: PluginRegistry
) -> None:
    path, other = compile_library("probe"), PluginRegistry(logger=Messages())
    registry.load_library(path)
    other.load_library(path)
    with pytest.raises(PluginError, match="a creator for plugin 'Probe' version '1' is already registered"):
        registry.load_library(path)
    registry.close()
    assert other.get_creator("Probe", "1").create_plugin("p", dt.PluginFieldCollection(), dt.TensorRTPhase.BUILD)


def test_two_libraries_in_one_process_keep_apart(compile_library: Compile, tmp_path: Path) -> None:
    copy = tmp_path / "libcopy.so"
    shutil.copy(compile_library("probe"), copy)
    first, second = PluginRegistry(), PluginRegistry()
    one, two = first.load_library(compile_library("probe")), second.load_library(copy)
    kept = one.creators[0].create_plugin("p", dt.PluginFieldCollection(), dt.TensorRTPhase.BUILD)
    assert (ctypes.CDLL(one.path).probesAlive(), ctypes.CDLL(two.path).probesAlive()) == (1, 0)
    kept.destroy()


def test_namespaces_and_safe_creators(compile_library: Compile, registry: PluginRegistry) -> None:
    library = registry.load_library(compile_library("spaces", "-fvisibility=hidden"))
    assert {str(key) for key in registry.creator_keys} == {
        "'Safe' version '3'",
        "'Spaced' version '3' in namespace 'acme'",
    }
    assert {creator.name: creator.safe for creator in library.creators} == {"Safe": True, "Spaced": False}
    assert isinstance(registry.logger, Messages)
    assert registry.logger.texts == ["WARNING initialised"]


def test_resources_are_shared(compile_library: Compile, registry: PluginRegistry) -> None:
    path = registry.load_library(compile_library("probe")).path
    assert ctypes.CDLL(path).shareTwice() == 0

    class Table(dt.IPluginResource):
        def clone(self) -> Table:
            return Table()

        def release(self) -> int:
            return 0

    get_plugin_registry().acquire_plugin_resource("python", Table())
    try:
        acquire = ctypes.CDLL(path).acquireIsNull
        acquire.restype = ctypes.c_bool
        assert acquire(b"python")
    finally:
        assert get_plugin_registry().release_plugin_resource("python")
    assert isinstance(registry.logger, Messages)
    assert "resource 'python' is a Python object, which C++ cannot use" in registry.logger.texts[-1]


@pytest.mark.parametrize("options", [(), ("-DNEEDS_LIBRARY",)])
def test_a_library_built_against_other_headers_is_told_how_to_be_rebuilt(
    compile_library: Compile, registry: PluginRegistry, options: tuple[str, ...]
) -> None:
    path = compile_library("foreign", *options)
    with pytest.raises(ForeignLibraryError, match="built against other headers") as caught:
        registry.load_library(path)
    assert "only getCreators" in str(caught.value)
    assert "dovetail include-dir" in str(caught.value)
    assert not is_mapped(path)


def test_a_library_of_another_version_is_refused(compile_library: Compile, registry: PluginRegistry) -> None:
    with pytest.raises(ForeignLibraryError, match="another version of Dovetail's headers") as caught:
        registry.load_library(compile_library("future"))
    assert "got binary interface 99" in str(caught.value)


def test_the_command_line_prints_where_the_headers_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["include-dir"]) == 0
    assert (Path(capsys.readouterr().out.strip()) / "NvInfer.h").is_file()


def test_other_files_are_refused(tmp_path: Path, registry: PluginRegistry) -> None:
    for contents, words in (
        (b"", "the file is empty"),
        (b"\x7fELF", "the file is no plugin library"),
        (b"\x7fELF dovetail_plugin_abi", "the library cannot be loaded"),
        (b"\x7fELF\x02\x01 dovetail_plugin_abi", "the library is cut short"),
    ):
        (tmp_path / "plugin.so").write_bytes(contents)
        with pytest.raises(PluginError, match=words):
            registry.load_library(tmp_path / "plugin.so")
    with pytest.raises(PluginError, match="there is no such plugin library"):
        registry.load_library(tmp_path / "gone.so")


@pytest.mark.parametrize("part", [0.1, 0.4])
def test_a_library_that_was_cut_short_is_refused(
    compile_library: Compile, registry: PluginRegistry, tmp_path: Path, part: float
) -> None:
    """The system would map what is not there, and the first access to it would end the process."""
    whole = compile_library("probe").read_bytes()
    cut = whole[: int(len(whole) * part)] + b"dovetail_plugin_abi"
    (tmp_path / "plugin.so").write_bytes(cut)
    with pytest.raises(PluginError, match=f"the library is cut short; expected at least [0-9]+ bytes, got {len(cut)}"):
        registry.load_library(tmp_path / "plugin.so")


@pytest.mark.skipif(shutil.which("pkg-config") is None, reason="there is no pkg-config here")
def test_pkg_config_finds_the_headers() -> None:
    environment = os.environ | {"PKG_CONFIG_PATH": str(INCLUDE / "pkgconfig")}
    command = ["pkg-config", "--cflags-only-I", "dovetail"]
    flags = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    assert (Path(flags.strip().removeprefix("-I")) / "NvInfer.h").is_file()


@pytest.mark.skipif(shutil.which("cmake") is None, reason="there is no CMake here")
def test_cmake_builds_a_library(compile_library: Compile, registry: PluginRegistry, tmp_path: Path) -> None:
    source = SOURCES["pad_plugin"]
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16)\nproject(pad CXX)\nfind_package(Dovetail REQUIRED)\n"
        f"add_library(pad MODULE {source})\ntarget_link_libraries(pad Dovetail::headers)\n"
    )
    configure = ["cmake", "-S", tmp_path, "-B", tmp_path / "build", f"-DDovetail_DIR={INCLUDE / 'cmake'}"]
    subprocess.run(configure, check=True, capture_output=True)
    subprocess.run(["cmake", "--build", tmp_path / "build"], check=True, capture_output=True)
    assert registry.load_library(tmp_path / "build" / "libpad.so").creators[0].name == "Pad"


def test_a_second_library_with_the_same_creator_is_refused_until_the_first_is_gone(
    compile_library: Compile, registry: PluginRegistry, tmp_path: Path
) -> None:
    first, second = compile_library("probe"), tmp_path / "libother.so"
    shutil.copy(first, second)
    library = registry.load_library(first)
    with pytest.raises(PluginError, match="a creator for plugin 'Probe' version '1' is already registered") as told:
        registry.load_library(second)
    assert str(first) in str(told.value)
    assert str(second) in str(told.value)
    assert registry.get_creator("Probe", "1") is library.creators[0]
    assert registry.deregister_library(library)
    assert registry.load_library(second).creators[0].name == "Probe"


def test_python_and_cpp_count_one_resource(compile_library: Compile, registry: PluginRegistry) -> None:
    class Own(dt.IPluginResource):
        def clone(self) -> Own:
            return Own()

        def release(self) -> int:
            return 0

    path = registry.load_library(compile_library("probe")).path
    library, shared = ctypes.CDLL(path), get_plugin_registry()
    library.acquireIsNull.restype = ctypes.c_bool
    assert not library.acquireIsNull(b"both")  # C++ is first, and Python gets what it brought
    found = shared.acquire_plugin_resource("both", Own())
    assert not isinstance(found, Own)
    assert found.api_language is dt.APILanguage.CPP
    assert shared.release_plugin_resource("both")
    assert library.releaseResource(b"both") == 0
    assert isinstance(shared.acquire_plugin_resource("both", Own()), Own)  # the count had come to zero
    assert shared.release_plugin_resource("both")


def test_the_safe_registry_checks_what_a_library_declares_safe(compile_library: Compile) -> None:
    safe = get_safe_plugin_registry()
    library = safe.load_library(compile_library("safe"))
    assert safe.get_creator("Negate", "1").safe
    assert safe.deregister_library(library)
    with pytest.raises(PluginError, match="the creator does not declare that it is safe"):
        safe.load_library(compile_library("pad_plugin"))


@pytest.mark.parametrize(("options", "version"), [((), 11), ((VERSION_8,), 8)], ids=["now", "version 8"])
def test_what_existing_sources_name_is_there(compile_library: Compile, options: tuple[str, ...], version: int) -> None:
    """The numbers: 1.75, 2, 4, 3, the bits of 1.75, and for version 8 its old names."""
    use_all = ctypes.CDLL(compile_library("names", *options)).useAll
    use_all.restype = ctypes.c_float
    assert use_all(None, None) == 10.75 + 0x3F00 + version + (version == 8)
