"""Creators that C++ libraries register themselves, however and in whatever order the libraries are loaded."""

from __future__ import annotations

import _ctypes
import ctypes
import gc
import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dovetail as dt
from dovetail.errors import PluginError
from dovetail.plugin.registry import PluginRegistry, get_plugin_registry
from dovetail.plugin.safe import get_safe_plugin_registry
from tests.support.native_libraries import Compile

Keys = set[tuple[str, str]]
X = np.arange(6, dtype=np.float32).reshape(2, 3)
_numbers = itertools.count()


class PythonCreator(dt.IPluginCreatorV3One):
    def __init__(self) -> None:
        super().__init__()
        self.name, self.plugin_version, self.plugin_namespace = "One", "1", ""
        self.field_names = dt.PluginFieldCollection([])

    def create_plugin(self, name: str, field_collection: Any, phase: Any) -> Any:
        return None


@pytest.fixture(autouse=True)
def registry() -> Iterator[PluginRegistry]:
    """The registry of the process, with what a test leaves removed."""
    registry = get_plugin_registry()
    before = list(registry.all_creators)
    yield registry
    for creator in registry.all_creators:
        if creator not in before:
            registry.deregister_creator(creator)


@pytest.fixture
def make_library(compile_library: Compile, tmp_path: Path) -> Callable[..., Path]:
    """Compiles a library under a path of its own, so that tests do not share its static variables."""

    def make(name: str, *options: str) -> Path:
        path = tmp_path / f"lib{name}{next(_numbers)}.so"
        shutil.copy(compile_library("registered", f"-DPLUGIN={name}", *options), path)
        return path

    return make


def open_library(path: Path, mode: int = ctypes.DEFAULT_MODE) -> Any:
    """Load a library as C programs do, without Dovetail."""
    library = ctypes.CDLL(str(path), mode=mode)
    for name in ("initMyPlugins", "endMyPlugins", "finds", "creates", "deregister"):
        getattr(library, name).restype = ctypes.c_bool
    return library


def close_library(library: Any) -> None:
    _ctypes.dlclose(library._handle)


def keys_of(registry: PluginRegistry) -> Keys:
    """Names and namespaces of the creators of C++ libraries."""
    return {
        (creator.name, creator.plugin_namespace)
        for creator in registry.all_creators
        if getattr(creator, "api_language", None) is dt.APILanguage.CPP
    }


def is_mapped(path: Path) -> bool:
    return str(path) in Path("/proc/self/maps").read_text(encoding="utf-8")


@pytest.mark.parametrize("mode", [ctypes.RTLD_LOCAL, ctypes.RTLD_GLOBAL])
@pytest.mark.parametrize("options", [(), ("-DOWN_NAMESPACE=foons",), ("-fvisibility=hidden",)])
def test_macro_registers_in_the_default_namespace(
    make_library: Callable[..., Path], registry: PluginRegistry, mode: int, options: tuple[str, ...]
) -> None:
    open_library(make_library("One", "-DMACRO", *options), mode)
    assert keys_of(registry) == {("One", "")}
    assert registry.find_creator("One", "1", "foons") is None


def test_load_library_registers_the_macro_in_the_default_namespace(make_library: Callable[..., Path]) -> None:
    own = PluginRegistry()
    own.load_library(make_library("One", "-DMACRO", "-DOWN_NAMESPACE=foons"))
    assert keys_of(own) == {("One", "")}


def test_getcreators_registers_in_the_namespace_of_the_creator(make_library: Callable[..., Path]) -> None:
    own = PluginRegistry()
    own.load_library(make_library("One", "-DLISTS", "-DOWN_NAMESPACE=foons"))
    assert keys_of(own) == {("One", "foons")}


def test_entry_point_of_a_library_registers_once(make_library: Callable[..., Path], registry: PluginRegistry) -> None:
    library = open_library(make_library("One"))
    assert keys_of(registry) == set()
    assert library.initMyPlugins(b"acme")
    assert keys_of(registry) == {("One", "acme")}
    assert not library.initMyPlugins(b"acme")
    assert library.initMyPlugins(b"")
    assert keys_of(registry) == {("One", "acme"), ("One", "")}
    assert library.endMyPlugins()
    assert keys_of(registry) == set()
    assert library.initMyPlugins(b"acme")
    assert keys_of(registry) == {("One", "acme")}


def test_entry_point_called_before_the_registry_is_read(
    make_library: Callable[..., Path], registry: PluginRegistry
) -> None:
    library = open_library(make_library("One", "-DMACRO"))
    assert not library.initMyPlugins(b"")  # the macro has registered it
    assert library.initMyPlugins(b"acme")
    assert keys_of(registry) == {("One", ""), ("One", "acme")}


def test_registered_plugin_is_built_loaded_and_run(make_library: Callable[..., Path], registry: PluginRegistry) -> None:
    open_library(make_library("One", "-DMACRO"))
    builder, runtime = dt.Builder(), dt.Runtime()
    for child in (builder.get_plugin_registry(), runtime.get_plugin_registry()):
        assert child.find_creator("One", "1") is registry.find_creator("One", "1")
    plugin = registry.get_creator("One", "1").create_plugin("p", dt.PluginFieldCollection(), dt.TensorRTPhase.BUILD)
    network = builder.create_network()
    layer = network.add_plugin_v3([network.add_input("x", dt.float32, X.shape)], [], plugin)
    network.mark_output(layer.get_output(0))
    plan = builder.build_serialized_network(network, builder.create_builder_config())
    assert np.array_equal(runtime.deserialize_cuda_engine(plan)(X), X + 1)


def test_libraries_find_creators_of_each_other(make_library: Callable[..., Path], registry: PluginRegistry) -> None:
    one, two = (open_library(make_library(name, "-DMACRO")) for name in ("One", "Two"))
    for library in (one, two):
        assert all(library.creates(name, b"") for name in (b"One", b"Two"))
        assert library.countCreators() == 2
    assert keys_of(registry) == {("One", ""), ("Two", "")}
    assert two.deregister(b"One", b"")
    assert keys_of(registry) == {("Two", "")}
    assert not one.finds(b"One", b"")


def test_creators_deregistered_in_python_are_not_found_in_cpp(
    make_library: Callable[..., Path], registry: PluginRegistry
) -> None:
    one, two = (open_library(make_library(name, "-DMACRO")) for name in ("One", "Two"))
    assert registry.deregister_creator(registry.get_creator("One", "1"))
    assert keys_of(registry) == {("Two", "")}
    assert not two.finds(b"One", b"")
    assert one.initMyPlugins(b"")
    assert keys_of(registry) == {("One", ""), ("Two", "")}


@pytest.mark.parametrize("read_between", [False, True])
def test_second_library_with_the_same_creator_is_refused(
    make_library: Callable[..., Path], registry: PluginRegistry, capsys: pytest.CaptureFixture[str], read_between: bool
) -> None:
    first = make_library("One", "-DMACRO")
    open_library(first)
    if read_between:
        assert keys_of(registry) == {("One", "")}
    second = open_library(make_library("One", "-DMACRO"))
    assert not second.initMyPlugins(b"")
    assert keys_of(registry) == {("One", "")}
    assert str(first) in repr(registry.get_creator("One", "1"))
    printed = "".join(capsys.readouterr())
    assert "a creator for plugin 'One' version '1' is not registered, because another one is" in printed


def test_python_and_cpp_creators_refuse_each_other(
    make_library: Callable[..., Path], registry: PluginRegistry, capsys: pytest.CaptureFixture[str]
) -> None:
    library = open_library(make_library("One"))
    assert keys_of(registry) == set()
    registry.register_creator(PythonCreator())
    assert library.initMyPlugins(b"other")  # attaches the library to the registry
    assert keys_of(registry) == {("One", "other")}
    assert not library.initMyPlugins(b"")
    open_library(make_library("One", "-DMACRO"))
    assert keys_of(registry) == {("One", "other")}
    assert "a creator for plugin 'One' version '1'" in "".join(capsys.readouterr())
    with pytest.raises(PluginError, match="already registered"):
        registry.register_creator(PythonCreator(), "other")


@pytest.mark.parametrize("ways", [("-DMACRO",), ("-DLISTS",), ("-DMACRO", "-DLISTS", "-DINITIALISES")])
@pytest.mark.parametrize("opened_first", [False, True])
def test_library_with_several_ways_is_loaded_once_and_without_an_error(
    make_library: Callable[..., Path], registry: PluginRegistry, ways: tuple[str, ...], opened_first: bool
) -> None:
    path, child = make_library("One", *ways), PluginRegistry(parent=registry)
    if opened_first:
        open_library(path)
        assert keys_of(registry) == ({("One", "")} if "-DMACRO" in ways else set())
    library = child.load_library(path)
    assert [creator.name for creator in library.creators] == ["One"]
    assert keys_of(child) == {("One", "")}
    handle = registry.load_library(path)
    assert keys_of(registry) == {("One", "")}
    assert registry.deregister_library(handle)
    assert keys_of(registry) == set()
    assert keys_of(child) == {("One", "")}


def test_library_of_one_registry_is_not_in_that_of_the_process(
    make_library: Callable[..., Path], registry: PluginRegistry
) -> None:
    path, other = make_library("One", "-DMACRO"), open_library(make_library("Two"))
    child = PluginRegistry(parent=registry)
    child.load_library(path)
    assert keys_of(registry) == set()
    assert not other.finds(b"One", b"")
    registry.load_library(path)
    assert keys_of(registry) == {("One", "")}
    assert other.creates(b"One", b"")


@pytest.mark.parametrize("ways", [("-DMACRO",), ("-DLISTS",)])
def test_libraries_find_creators_loaded_by_the_registry(
    make_library: Callable[..., Path], registry: PluginRegistry, ways: tuple[str, ...]
) -> None:
    other = open_library(make_library("Two"))
    handle = registry.load_library(make_library("One", *ways))
    assert other.creates(b"One", b"")
    registry.deregister_library(handle)
    assert not other.finds(b"One", b"")


def test_two_copies_of_a_library_serve_two_registries(
    make_library: Callable[..., Path], registry: PluginRegistry
) -> None:
    open_library(make_library("One", "-DMACRO"))
    child = PluginRegistry(parent=registry)
    child.load_library(make_library("One", "-DMACRO"))
    assert child.get_creator("One", "1") is not registry.get_creator("One", "1")


def test_library_closed_before_it_is_read_leaves_nothing(
    make_library: Callable[..., Path], registry: PluginRegistry
) -> None:
    path = make_library("One", "-DMACRO")
    close_library(open_library(path))
    assert not is_mapped(path)
    assert keys_of(registry) == set()


def test_registered_library_stays_loaded_until_it_has_no_creator(
    make_library: Callable[..., Path], registry: PluginRegistry
) -> None:
    path = make_library("One", "-DMACRO")
    library = open_library(path)
    creator = registry.get_creator("One", "1")
    close_library(library)
    assert creator.create_plugin("p", dt.PluginFieldCollection(), dt.TensorRTPhase.BUILD).clone()
    assert registry.deregister_creator(creator)
    del creator
    gc.collect()
    assert not is_mapped(path)


def test_library_that_is_linked_with_another_is_seen_through(
    compile_library: Compile, make_library: Callable[..., Path], registry: PluginRegistry
) -> None:
    path = make_library("One", "-DMACRO", "-Wl,-soname,")
    wrapper = ctypes.CDLL(str(compile_library("wrapper", str(path), "-Wl,--no-as-needed")))
    assert keys_of(registry) == {("One", "")}
    assert wrapper.initThroughWrapper(b"acme")
    assert keys_of(registry) == {("One", ""), ("One", "acme")}


def test_safe_macro_registers_in_the_safe_registry(make_library: Callable[..., Path], registry: PluginRegistry) -> None:
    open_library(make_library("One", "-DSAFE_MACRO"))
    safe = get_safe_plugin_registry()
    try:
        assert keys_of(safe) == {("One", "")}
        assert keys_of(registry) == set()
    finally:
        for creator in safe.all_creators:
            safe.deregister_creator(creator)


def test_library_of_another_version_is_reported(compile_library: Compile, capsys: pytest.CaptureFixture[str]) -> None:
    library = ctypes.CDLL(str(compile_library("future")))
    try:
        assert get_plugin_registry().find_creator("Future", "1") is None
        assert "another version of Dovetail's headers" in "".join(capsys.readouterr())
    finally:
        close_library(library)


PROGRAM = """
import ctypes
{before}
import dovetail
{after}
print(sorted((c.name, c.plugin_namespace) for c in dovetail.get_plugin_registry().all_creators))
"""


@pytest.mark.parametrize("when", ["before", "after", "preload"])
def test_order_of_import_and_load_does_not_matter(make_library: Callable[..., Path], when: str) -> None:
    path = make_library("One", "-DMACRO")
    load = f"library = ctypes.CDLL({str(path)!r}); assert library.initMyPlugins(b'acme')"
    if when == "preload":
        load = "library = ctypes.CDLL(None); assert library.initMyPlugins(b'acme')"
    code = PROGRAM.format(before="" if when == "after" else load, after=load if when == "after" else "")
    environment = os.environ | ({"LD_PRELOAD": str(path)} if when == "preload" else {})
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stdout.strip() == "[('One', ''), ('One', 'acme')]", done.stderr


def test_libraries_find_each_other_without_dovetail(make_library: Callable[..., Path]) -> None:
    paths = [str(make_library(name, "-DMACRO")) for name in ("One", "Two")]
    code = (
        f"import ctypes, sys\none, two = map(ctypes.CDLL, {paths})\n"
        "assert one.creates(b'Two', b'') and two.creates(b'One', b'') and one.countCreators() == 2\n"
        "assert two.initMyPlugins(b'') & 1 == 0 and two.initMyPlugins(b'acme') & 1 and one.finds(b'Two', b'acme')\n"
        "assert 'dovetail' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# Random sequences of operations on three libraries, of which two have the same plugin.

_OPERATIONS = ("open", "close", "init", "end", "remove", "read", "load", "unload", "load in child")
_STEPS = st.lists(
    st.tuples(st.sampled_from(_OPERATIONS), st.integers(0, 2), st.sampled_from(["", "acme"])), max_size=14
)


class _Bench:
    """Three libraries in any state, and what every registry must agree on."""

    def __init__(self, paths: list[Path]) -> None:
        self.paths, self.registry = paths, get_plugin_registry()
        self.open: list[list[Any]] = [[] for _ in paths]
        self.handles: list[list[Any]] = [[] for _ in paths]
        self.child = PluginRegistry(parent=self.registry)

    def apply(self, operation: str, index: int, space: str) -> None:
        opened, handles, path = self.open[index], self.handles[index], self.paths[index]
        if operation == "open":
            opened.append(open_library(path))
        elif operation == "close" and opened:
            close_library(opened.pop())
        elif operation == "init" and opened:
            before = keys_of(self.registry)
            made = opened[-1].initMyPlugins(space.encode())
            name = "Two" if index == 2 else "One"
            assert made == ((name, space) not in before)
            assert keys_of(self.registry) == before | {(name, space)}
        elif operation == "end" and opened:
            opened[-1].endMyPlugins()
        elif operation == "remove":
            for creator in self.registry.all_creators[:1]:
                assert self.registry.deregister_creator(creator)
        elif operation == "load":
            self._attempt(lambda: handles.append(self.registry.load_library(path)))
        elif operation == "unload" and handles:
            self.registry.deregister_library(handles.pop())
        elif operation == "load in child":
            self._attempt(lambda: self.child.load_library(path))
        self.check()

    def _attempt(self, load: Callable[[], object]) -> None:
        try:
            load()
        except PluginError as error:
            if "already registered" not in str(error):
                raise

    def check(self) -> None:
        """Every registry has the same creators, and each of them works."""
        keys = keys_of(self.registry)
        for creator in (*self.registry.all_creators, *self.child.all_creators):
            assert creator.create_plugin("p", dt.PluginFieldCollection(), dt.TensorRTPhase.BUILD)
        for opened in self.open:
            for library in opened[-1:]:
                for key in keys:
                    assert library.creates(*(text.encode() for text in key)), key

    def close(self) -> None:
        self.child.close()
        for handles in self.handles:
            for handle in handles:
                self.registry.deregister_library(handle)
        for creator in self.registry.all_creators:
            self.registry.deregister_creator(creator)
        for opened in self.open:
            for library in opened:
                close_library(library)


@settings(deadline=None, max_examples=int(os.environ.get("DOVETAIL_EXAMPLES", "15")))
@given(steps=_STEPS)
def test_registries_agree_after_any_sequence(compile_library: Compile, steps: list[tuple[str, int, str]]) -> None:
    names = ("One", "One", "Two")
    folder = Path(compile_library("registered", "-DPLUGIN=One", "-DMACRO")).parent
    paths = []
    for name in names:
        path = folder / f"libcopy{os.getpid()}_{next(_numbers)}.so"
        shutil.copy(compile_library("registered", f"-DPLUGIN={name}", "-DMACRO"), path)
        paths.append(path)
    bench = _Bench(paths)
    try:
        for step in steps:
            bench.apply(*step)
    finally:
        bench.close()
        for path in paths:
            path.unlink()
