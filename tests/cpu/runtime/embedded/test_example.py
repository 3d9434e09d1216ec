"""The example that runs a plan from C++, built as its page says: with one line and with CMake."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.native_libraries import INCLUDE, ROOT
from tests.support.native_programs import compile_program, find_flags, run_program

EXAMPLE = ROOT / "examples/cpp/run_plan"


def _check(program: Path, plan: Path) -> None:
    output, time = run_program(program, plan)
    assert output == "y: float32, 12 bytes: 0, 0, 0"
    assert re.fullmatch(r"\d+\.\d us", time)
    done = subprocess.run([program, plan.with_suffix(".gone")], check=False, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("PlanError: ")


@pytest.mark.slow
def test_one_line_builds_it(plans: Path) -> None:
    _check(compile_program(EXAMPLE / "run_plan.cpp"), plans / "relu.plan")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cmake") is None, reason="there is no CMake here")
def test_cmake_builds_it(plans: Path, tmp_path: Path) -> None:
    find_flags()  # skips where this Python has no library
    options = [f"-DDovetail_DIR={INCLUDE / 'cmake'}", f"-DPython3_EXECUTABLE={sys.executable}"]
    subprocess.run(["cmake", "-S", EXAMPLE, "-B", tmp_path, *options], check=True, capture_output=True)
    subprocess.run(["cmake", "--build", tmp_path], check=True, capture_output=True)
    _check(tmp_path / "run_plan", plans / "relu.plan")
