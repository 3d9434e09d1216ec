"""A short run of the fuzz target for CUDA plans; ``make fuzz MINUTES=60 TARGETS=cuda`` runs it for longer."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

NUM_CASES = 400


@pytest.mark.timeout(240)
def test_changed_plans_are_refused_or_launch_inside_memory() -> None:
    # A process of its own, because the provider stays registered there.
    command = [sys.executable, "-m", "tests.fuzz.cuda_plans", str(NUM_CASES), "28"]
    finished = subprocess.run(
        command, cwd=Path(__file__).parents[3], capture_output=True, text=True, check=False, timeout=200
    )
    assert finished.returncode == 0, finished.stderr[-3000:]
    outcomes = json.loads(finished.stdout.splitlines()[-1])
    assert sum(outcomes.values()) == NUM_CASES
    assert outcomes["PlanCorruptError"] > NUM_CASES // 3
    assert outcomes["ran"] > NUM_CASES // 50
