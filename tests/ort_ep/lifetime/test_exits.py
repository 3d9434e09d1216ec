"""The end of a process while daemon threads use sessions: it neither crashes nor hangs.

Each scenario of ``programs/exits.py`` runs in processes of its own, which end after a random time. The variable
``DOVETAIL_EXIT_RUNS`` sets their number for a search.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "programs" / "exits.py"
ROOT = Path(__file__).parents[3]
QUICK_RUNS = 3
SLOW_RUNS = int(os.environ.get("DOVETAIL_EXIT_RUNS", "25"))
STATUSES = {"exception": 1}
"""The exit status of a scenario that does not end with 0."""
SCENARIOS = [
    "run",
    "kernels",
    "cpu",
    "binding",
    "sessions",
    "kernel_sessions",
    "busy",
    "exception",
    "join",
    "run_in_handlers",
]


def check_statuses(scenario: str, count: int) -> None:
    """Run processes of a scenario and compare their exit statuses."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM), scenario, str(count)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60 + 60 * count,
    )
    statuses: list[int] = json.loads(done.stdout.splitlines()[-1])
    assert Counter(statuses) == {STATUSES.get(scenario, 0): count}, done.stderr[-2000:]


@pytest.mark.timeout(60 + 60 * QUICK_RUNS)
def test_a_process_ends_while_daemon_threads_run_a_session_on_a_device() -> None:
    check_statuses("run", QUICK_RUNS)


@pytest.mark.timeout(60 + 60 * QUICK_RUNS)
def test_an_exit_handler_may_wait_for_threads_that_run_a_session() -> None:
    check_statuses("join", 1)


@pytest.mark.slow
@pytest.mark.timeout(120 + 60 * SLOW_RUNS)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_process_ends_without_a_crash(scenario: str) -> None:
    check_statuses(scenario, SLOW_RUNS)
