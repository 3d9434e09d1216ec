"""Streams that are closed or full: the exit code is the documented one, and there is no traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from dovetail.cli import failures
from dovetail.cli.streams import plain_warnings
from tests.support.handmade_plans import make_manifest, write_handmade

FULL = Path("/dev/full")
DOVETAIL = f"{sys.executable} -m dovetail"
needs_full = pytest.mark.skipif(not FULL.is_char_device(), reason="the system has no device that is full")


def _run(line: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(["sh", "-c", f"{DOVETAIL} {line}"], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert "internal error" not in done.stderr
    return done


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_handmade(tmp_path_factory.mktemp("streams") / "a.plan", make_manifest())


def test_warnings_are_shown_as_messages(capsys: pytest.CaptureFixture[str]) -> None:
    with plain_warnings():
        warnings.simplefilter("always")
        warnings.warn("the default is used", RuntimeWarning, stacklevel=1)
    assert capsys.readouterr().err == "warning: the default is used\n"


@needs_full
@pytest.mark.parametrize("words", ["inspect {}", "inspect {} --json", "-h"])
def test_a_full_output_is_a_missing_resource(words: str, plan: Path) -> None:
    done = _run(f"{words.format(plan)} > {FULL}")
    assert done.returncode == 6
    assert done.stderr.startswith("error: standard output: the output cannot be written: No space left")


@pytest.mark.parametrize("words", ["inspect {}", "--version"])
def test_a_closed_output_is_a_missing_resource(words: str, plan: Path) -> None:
    done = _run(f"{words.format(plan)} >&-")
    assert done.returncode == 6
    assert done.stderr.startswith("error: standard output: the output cannot be written: Bad file descriptor")


def test_help_for_a_reader_that_stopped() -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run([*DOVETAIL.split(), "-h"], stdout=write, stderr=subprocess.PIPE, check=False)
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (failures.EXIT_PIPE, b"")


@pytest.mark.parametrize("where", ["2>&-", pytest.param(f"2> {FULL}", marks=needs_full)])
def test_messages_that_nobody_can_read_change_nothing(where: str, plan: Path) -> None:
    done = _run(f"run none.plan {where}")
    assert (done.returncode, done.stdout) == (2, "")
    done = _run(f"run none.plan --json {where}")
    assert (done.returncode, json.loads(done.stdout)["exit_code"]) == (2, 2)
    assert _run(f"inspect {plan} {where}").returncode == 0


@needs_full
def test_a_failure_keeps_its_code_when_its_document_cannot_be_written() -> None:
    done = _run(f"run none.plan --json > {FULL}")
    assert (done.returncode, done.stderr.splitlines()[0]) == (2, "error: 'none.plan': there is no such file")
