"""The end of a process in every way while plugins in C++ and in Python are in use: no crash, no destroyed plugin runs.

Each scenario of ``programs/exits.py`` runs in processes of its own, which end after a random time. By default it runs
three times; the variable ``DOVETAIL_EXIT_RUNS`` sets another number for a search.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.support.native_libraries import Compile

PROGRAM = Path(__file__).parent / "programs" / "exits.py"
RUNS = int(os.environ.get("DOVETAIL_EXIT_RUNS", "3"))
STATUSES = {"unhandled": 1, "hard_exit": 3, "system_exit": 4, "interrupted": -signal.SIGINT}
"""The exit status of a scenario that does not end with 0."""
SCENARIOS = [
    "daemon",
    "daemon_one_context",
    "daemon_chatty",
    "daemon_allocator",
    "daemon_build",
    "daemon_build_chatty",
    "daemon_load",
    "daemon_contexts",
    "daemon_python",
    "daemon_python_build",
    "static_destructor",
    "library_thread",
    "library_thread_busy",
    "everything",
    "atexit_before",
    "atexit_after",
    "atexit_close",
    "close_while_running",
    "exit_in_thread",
    "unhandled",
    "interrupted",
    "hard_exit",
    "system_exit",
    "non_daemon",
    "ort_cpp",
    "ort_python",
]
if importlib.util.find_spec("dovetail_tensorrt") is not None:
    SCENARIOS.append("tensorrt_module")


def end_processes(library: Path, scenario: str, count: int) -> tuple[list[int], str]:
    """The exit statuses of processes that run a scenario, and the errors that they wrote."""
    command = [sys.executable, str(PROGRAM), str(library), scenario, str(count)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60 + 60 * count)
    statuses: list[int] = json.loads(done.stdout.splitlines()[-1])
    return statuses, done.stderr


@pytest.mark.slow
@pytest.mark.timeout(120 + 60 * RUNS)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_process_ends_without_a_crash(compile_library: Compile, scenario: str) -> None:
    statuses, errors = end_processes(compile_library("exits"), scenario, RUNS)
    assert Counter(statuses) == {STATUSES.get(scenario, 0): RUNS}, errors[-2000:]
