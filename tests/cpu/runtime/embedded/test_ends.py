"""C++ programs that end while threads of theirs run plans: no crash.

The variable ``DOVETAIL_EXIT_RUNS`` sets how often each program ends, after a random time.
"""

from __future__ import annotations

import os
import random
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.support.native_programs import compile_program

RUNS = int(os.environ.get("DOVETAIL_EXIT_RUNS", "2"))


@pytest.mark.slow
@pytest.mark.timeout(60 + 30 * RUNS)
@pytest.mark.parametrize("end", ["return", "exit", "thread", "static"])
def test_program_ends_while_threads_run(plans: Path, end: str) -> None:
    program, chance = compile_program(Path(__file__).parent / "ends.cpp"), random.Random(end)
    statuses = Counter[int]()
    for _ in range(RUNS):
        delay_ms = str(chance.randrange(40))
        command = [program, plans / "relu.plan", end, delay_ms]
        statuses[subprocess.run(command, capture_output=True, check=False, timeout=120).returncode] += 1
    assert statuses == {0: RUNS}
