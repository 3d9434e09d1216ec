"""A run from C++ costs little over the same run from Python; machines are noisy, so the best of three counts."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from benchmarks.cpp_runtime import LIMITS_US, build_program, derive, measure, save_plan


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++ here")
def test_a_run_from_cpp_is_within_its_limits(tmp_path: Path) -> None:
    save_plan(tmp_path / "relu.plan")
    program = build_program(tmp_path)
    figures = [derive(measure(program, tmp_path / "relu.plan")) for _ in range(3)]
    best = {name: min(f[name] for f in figures) for name in LIMITS_US}
    assert all(best[name] <= limit for name, limit in LIMITS_US.items()), best
