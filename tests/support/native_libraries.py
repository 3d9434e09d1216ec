"""C++ plugin libraries for tests, compiled with g++ where there is one."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import dovetail

__all__ = ["INCLUDE", "ROOT", "SOURCES", "VERSION_8", "Compile", "make_compiler"]

ROOT = Path(__file__).parents[2]
FOLDERS = (ROOT / "tests/cpu/plugin/native/sources", ROOT / "examples/cpp")
SOURCES = {path.stem: path for folder in FOLDERS for path in folder.glob("*.cpp")}
INCLUDE = Path(dovetail.__file__).parent / "include"
VERSION_8 = f"-I{INCLUDE / 'v8'}"
"""The option for sources that were written for version 8 of the contract."""
FLAGS = ("-std=c++17", "-O0", "-fPIC", "-shared", "-Wall", "-Wextra", "-Wpedantic", "-Werror")

Compile = Callable[..., Path]


def make_compiler(folder: Path) -> Compile:
    """A function that compiles a source by its name, with more options where given, into a folder and once."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("there is no g++ here")

    def compile_library(name: str, *options: str) -> Path:
        path = folder / f"lib{name}{abs(hash(options)) if options else ''}.so"
        if not path.exists():
            folders = (INCLUDE, INCLUDE / "no_cuda", ROOT / "examples/cpp")
            command = [compiler, *FLAGS, *options, *(f"-I{folder}" for folder in folders), SOURCES[name], "-o", path]
            subprocess.run(command, check=True)
        return path

    return compile_library
