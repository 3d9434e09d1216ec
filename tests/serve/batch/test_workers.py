"""Shards in several processes: one that dies is replaced, and what kills it every time is kept aside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from dovetail.errors import ProviderError
from dovetail_serve.batch import run_batch
from dovetail_serve.batch.journal import JOURNAL
from tests.serve.batch.support import make_job, make_plan, read_failures, read_rows, write_arrays


def test_a_process_that_dies_costs_nothing_but_what_kills_it(tmp_path: Path) -> None:
    library = tmp_path / "fragile_layers.py"
    plan = make_plan(tmp_path / "fragile.plan", library=library)
    rows = write_arrays(tmp_path / "in" / "a.npy", 60)
    rows[3], rows[44] = -2, -3  # the first kills each time, the other once
    np.save(tmp_path / "in" / "a.npy", rows)
    job = make_job(plan, tmp_path / "in", tmp_path / "out", plugins=[library], instances=2)
    result = run_batch(job)
    failures = read_failures(tmp_path / "out")
    assert [failure.row for failure in failures] == list(range(10))
    assert {failure.error for failure in failures} == {"the process that ran it died 3 times"}
    assert result.num_failed == 10
    assert sorted(read_rows(tmp_path / "out", "a.npy")) == list(range(10, 60))


def test_a_worker_that_cannot_write_ends_the_batch(plan: Path, tmp_path: Path) -> None:
    write_arrays(tmp_path / "in" / "a.npy", 60)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / JOURNAL).touch()
    (tmp_path / "out" / "a.npy.00003.npz").mkdir()  # where a file should go
    with pytest.raises(ProviderError, match="results cannot be written"):
        run_batch(make_job(plan, tmp_path / "in", tmp_path / "out", instances=2))


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "killpg"), reason="signals of groups are those of POSIX")
@pytest.mark.parametrize(("signal_number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_a_command_that_is_stopped_goes_on(plan: Path, tmp_path: Path, signal_number: int, code: int) -> None:
    write_arrays(tmp_path / "in" / "a.npy", 1500)
    words = [str(plan), str(tmp_path / "in"), str(tmp_path / "out"), "--shard-rows", "10", "--instances", "2"]
    command = [sys.executable, "-m", "dovetail", "batch", *words]
    messages = tmp_path / "messages"
    with messages.open("wb") as stream:
        process = subprocess.Popen(command, stderr=stream, stdout=subprocess.DEVNULL)
    journal = tmp_path / "out" / JOURNAL
    while process.poll() is None and not (journal.exists() and journal.read_bytes().count(b"\n") > 5):
        time.sleep(0.02)
    process.send_signal(signal_number)
    assert process.wait(timeout=60) == code
    if signal_number == signal.SIGINT:
        assert "the same command goes on" in messages.read_text()
    done = journal.read_bytes().count(b"\n")
    assert done < 150
    subprocess.run(command, check=True, capture_output=True, timeout=100)
    assert sorted(read_rows(tmp_path / "out", "a.npy")) == list(range(1500))
    assert not list((tmp_path / "out").glob(".dovetail-*"))
