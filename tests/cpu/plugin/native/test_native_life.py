"""Loading, running and unloading many times under AddressSanitizer: nothing wrong is touched and nothing is left."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.native_libraries import Compile

PROGRAM = Path(__file__).parent / "programs" / "load_run_unload.py"
SANITIZE = ("-g", "-fsanitize=address,undefined")
MOST_BYTES_A_TIME = 1000
"""What the interpreter and the loader of the system may keep of one time."""


def find_sanitizer() -> str:
    """The run times that must be loaded first: the sanitizer's, and the one whose functions it replaces."""
    compiler = shutil.which("g++") or "g++"
    names = ("libasan.so", "libstdc++.so")
    found = [
        subprocess.run(
            [compiler, f"-print-file-name={name}"], check=True, capture_output=True, text=True
        ).stdout.strip()
        for name in names
    ]
    if not all(Path(path).is_absolute() for path in found):
        pytest.skip("there is no AddressSanitizer here")
    return " ".join(found)


def _ask_compiler(question: str) -> str:
    command = [shutil.which("g++") or "g++", question]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def run_times(library: Path, plugin: str, times: int, settings: Mapping[str, str]) -> tuple[int, str]:
    """How many bytes more are allocated, and what was written to the standard error."""
    command = [sys.executable, str(PROGRAM), str(library), plugin, str(times)]
    environment = os.environ | {"PYTHONMALLOC": "malloc", **settings}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr[-3000:]
    return int(done.stdout.splitlines()[-1]), done.stderr


def check_sanitized(library: Path, plugin: str, times: int) -> None:
    settings = {
        "LD_PRELOAD": find_sanitizer(),
        "ASAN_OPTIONS": "detect_leaks=1",
        "LSAN_OPTIONS": "exitcode=0",
        "UBSAN_OPTIONS": "halt_on_error=1",
    }
    growth, written = run_times(library, plugin, times, settings)
    assert "ERROR: AddressSanitizer" not in written
    # The interpreter leaves objects of its own behind; what C++ allocates, it allocates with new.
    assert "operator new" not in written, written[-3000:]
    assert growth < times * MOST_BYTES_A_TIME


def test_a_library_is_loaded_run_and_unloaded_many_times(compile_library: Compile) -> None:
    growth, _ = run_times(compile_library("older"), "Scale", 100, {})
    assert growth < 100 * MOST_BYTES_A_TIME


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_many_times_touch_nothing_wrong_and_leave_nothing(compile_library: Compile) -> None:
    check_sanitized(compile_library("older", *SANITIZE), "Scale", 60)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif("DOVETAIL_LONG" not in os.environ, reason="takes minutes: set DOVETAIL_LONG=1 to run it")
@pytest.mark.parametrize(("source", "plugin"), [("probe", "Probe"), ("older", "Scale")])
def test_a_thousand_times_touch_nothing_wrong_and_leave_nothing(
    compile_library: Compile, source: str, plugin: str
) -> None:
    check_sanitized(compile_library(source, *SANITIZE), plugin, 1000)
