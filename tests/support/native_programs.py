"""C++ programs for tests, compiled with g++ where there is one and run in a process of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.native_cache import compile_once, find_compiler
from tests.support.native_libraries import INCLUDE

__all__ = ["compile_program", "find_flags", "run_program"]

WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")


SUPPRESSIONS = Path(__file__).with_name("python_leaks.txt")
SANITIZERS = {
    "PYTHONMALLOC": "malloc",
    "LSAN_OPTIONS": f"suppressions={SUPPRESSIONS}:print_suppressions=0",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}
"""For programs that are compiled with sanitizers: what the interpreter itself leaves behind is none of their leaks."""


def find_flags() -> list[str]:
    """What ``dovetail runtime-flags`` says."""
    command = [sys.executable, "-m", "dovetail", "runtime-flags", "--json"]
    answer = subprocess.run(command, check=False, capture_output=True, text=True)
    if answer.returncode == 6:
        pytest.skip(f"programs cannot be linked with this Python: {answer.stderr}")
    document: dict[str, Any] = json.loads(answer.stdout)
    return [*document["compile"], *document["link"]]


def compile_program(source: Path, *options: str) -> Path:
    """Compile a source into a program."""
    find_compiler()
    return compile_once(source.stem, source, [*WARNINGS, *options, f"-I{INCLUDE}/no_cuda", *find_flags()])


def run_program(program: Path, *arguments: str | Path, **environment: str) -> list[str]:
    """The lines that a program printed; it must end well and say nothing else."""
    command = [str(program), *map(str, arguments)]
    everything = os.environ | SANITIZERS | environment
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=everything, timeout=300)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout.splitlines()
