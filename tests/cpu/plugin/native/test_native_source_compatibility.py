"""Sources for TensorRT compile unchanged: virtual destructors of other bases, and methods with and without noexcept."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import dovetail as dt
from dovetail.plugin.registry import PluginRegistry
from tests.support.native_libraries import INCLUDE, VERSION_8, Compile
from tests.support.plugins import build_engine

HEADERS = ("plugin.h", "plugin_quick.h", "plugin_v2.h", "context.h", "registry.h", "expr.h")
STRICT = ("-Werror=suggest-override", "-Werror=noexcept", "-Werror=non-virtual-dtor")
WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Wsuggest-override", "-Wnon-virtual-dtor")
VARIANTS = {
    "noexcept": ("-DMETHOD=noexcept", "-std=c++17"),
    "without noexcept": ("-DMETHOD=", "-std=c++17"),
    "noexcept, C++14": ("-DMETHOD=noexcept", "-std=c++14"),
    "noexcept, version 8": ("-DMETHOD=noexcept", "-std=c++17", VERSION_8),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_classes_with_virtual_bases_compile_and_run(compile_library: Compile, variant: str) -> None:
    path = compile_library("virtual_bases", *VARIANTS[variant], *STRICT)
    registry = PluginRegistry()
    registry.load_library(path)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for name in ("V3WithBase", "V2WithBase"):
        creator = registry.get_creator(name, "1", "")
        plugin = creator.create_plugin("p", dt.PluginFieldCollection(), dt.TensorRTPhase.BUILD)
        plan, runtime = build_engine(plugin, creator, shape=(2, 3))
        with runtime.deserialize_cuda_engine(plan) as engine:
            np.testing.assert_array_equal(engine(x), 2 * x)
    registry.get_creator("Hidden", "1", "").create_plugin("p", dt.PluginFieldCollection(), dt.TensorRTPhase.BUILD)
    assert ctypes.CDLL(str(path)).destroyMembers() == 7  # six members and the class that holds them


def read_classes() -> Iterator[tuple[str, str]]:
    """Yield the name and the body of each class of the headers with a virtual method."""
    for header in HEADERS:
        text = (INCLUDE / "dovetail" / header).read_text(encoding="utf-8")
        for name, body in re.findall(r"^class (\w+)(?: : public \w+)?\n\{(.*?)^\};", text, re.M | re.S):
            if not name.endswith("Registrar"):
                yield name, re.sub(r"//[^\n]*|/\*.*?\*/", "", body)


def declare_overrides(body: str, specifier: str) -> list[str]:
    """Return declarations that override all virtual methods of a class.

    Args:
        body: The text of the class.
        specifier: The specifier of the overrides. Methods that are noexcept in the header stay noexcept.
    """
    methods = re.findall(r"virtual ([^;{~]*?\([^;{]*\))( const)?( noexcept)?\s*(?:=\s*0;|\{)", body)
    return [
        f"    {re.sub(r' = [^,)]*', '', signature)}{const}{is_noexcept or specifier} override;"
        for signature, const, is_noexcept in methods
    ]


def write_source(specifier: str) -> tuple[str, int]:
    """Return a source with subclasses of all classes of the headers, and the number of overridden methods."""
    lines = ["#include <NvInferPlugin.h>", "#include <NvInferPythonPlugin.h>", "#include <type_traits>"]
    lines += ["using namespace nvinfer1;", "struct Base { virtual ~Base() = default; };"]
    num_methods = 0
    for name, body in read_classes():
        overrides = declare_overrides(body, specifier)
        num_methods += len(overrides)
        lines += [f"struct First{name} : {name}, Base {{}};", f"struct Last{name} : Base, {name} {{}};"]
        lines += [f"struct User{name} : {name}", "{", *overrides, "};"]
        lines += [f"struct Declared{name} : Base, {name} {{ ~Declared{name}() override {{}} }};"]
        lines += [
            f'static_assert(std::is_nothrow_destructible<{kind}{name}>::value, "{kind}{name}");'
            for kind in ("First", "Last", "User", "Declared")
        ]
    return "\n".join([*lines, ""]), num_methods


def check_syntax(compiler: str, source: Path, *options: str) -> None:
    command = [compiler, "-fsyntax-only", *WARNINGS, *options, f"-I{INCLUDE}", f"-I{INCLUDE / 'no_cuda'}", str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("standard", ["c++14", "c++17", "c++20"])
@pytest.mark.parametrize("specifier", [" noexcept", ""], ids=["noexcept", "without noexcept"])
@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_subclasses_of_every_interface_compile(tmp_path: Path, compiler: str, specifier: str, standard: str) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    text, num_methods = write_source(specifier)
    assert num_methods > 100
    source = tmp_path / "subclasses.cpp"
    source.write_text(text, encoding="utf-8")
    check_syntax(compiler, source, f"-std={standard}", "-Wno-overloaded-virtual")  # one overload of a name is enough
