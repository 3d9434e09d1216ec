"""Random changes to manifests, in a process of its own: whatever loads gives a result or an error of Dovetail.

The cases are those of ``tests/support/plan_fuzz.py``. Where the C library has a heap checker it is switched on, so that
a write outside of an array that happens to hit nothing important ends the process too.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.attack_plans import TARGETS, attack_device, target
from tests.support.plan_fuzz import run_case

ROOT = Path(__file__).parents[3]
CASES = 1000
SECONDS = 15
HEAP_CHECKERS = ("/lib/x86_64-linux-gnu/libc_malloc_debug.so.0", "/lib64/libc_malloc_debug.so.0")


def _environment() -> dict[str, str]:
    checker = next((path for path in HEAP_CHECKERS if Path(path).exists()), None)
    if checker is None:
        return dict(os.environ)
    return {**os.environ, "LD_PRELOAD": checker, "GLIBC_TUNABLES": "glibc.malloc.check=3"}


@pytest.mark.skipif(sys.platform == "win32", reason="a case that hangs is ended by SIGALRM")
def test_whatever_loads_gives_a_result_or_an_error() -> None:
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.support.plan_fuzz", "0", str(CASES), str(SECONDS)]
    done = subprocess.run(
        command, cwd=ROOT, env=_environment(), capture_output=True, text=True, timeout=16 * SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    counts = json.loads(done.stdout)
    assert counts["cases"] >= 100
    assert counts["PlanCorruptError"] > counts["cases"] // 2
    assert counts["ran"] > counts["cases"] // 50


@pytest.mark.parametrize("name", TARGETS)
def test_a_case_can_be_repeated(name: str) -> None:
    plan = target(name)
    with attack_device():
        outcomes = [[run_case(plan, random.Random(f"again/{number}")) for number in range(10)] for _ in range(2)]
    assert outcomes[0] == outcomes[1]
