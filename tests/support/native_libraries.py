"""C++ plugin libraries for tests, compiled with g++ where there is one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import dovetail
from tests.support.native_cache import compile_once

__all__ = ["INCLUDE", "ROOT", "SOURCES", "VERSION_8", "Compile", "compile_library"]

ROOT = Path(__file__).parents[2]
FOLDERS = (ROOT / "tests/cpu/plugin/native/sources", ROOT / "examples/cpp")
SOURCES = {path.stem: path for folder in FOLDERS for path in folder.glob("*.cpp")}
INCLUDE = Path(dovetail.__file__).parent / "include"
VERSION_8 = f"-I{INCLUDE / 'v8'}"
"""The option for sources that were written for version 8 of the contract."""
FLAGS = ("-std=c++17", "-O0", "-fPIC", "-shared", "-Wall", "-Wextra", "-Wpedantic", "-Werror")

Compile = Callable[..., Path]


def compile_library(name: str, *options: str) -> Path:
    """Compile a source by its name, with more options where given."""
    folders = (INCLUDE, INCLUDE / "no_cuda", ROOT / "examples/cpp")
    return compile_once(f"lib{name}.so", SOURCES[name], [*FLAGS, *options, *(f"-I{folder}" for folder in folders)])
