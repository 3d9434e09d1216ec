"""A batch on Ray: actors die, the program dies, and every row is there once."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dovetail_serve.batch.journal import JOURNAL
from dovetail_serve.ray.shards import TRIES_FOLDER
from tests.serve.batch.support import make_plan, read_failures, read_rows
from tests.serve.ray.apart import run_apart


def count_done(target: Path) -> int:
    journal = target / JOURNAL
    return journal.read_bytes().count(b"\n") - 1 if journal.exists() else 0


def run_rows(folder: Path, *, num_rows: int, shard_rows: int, kills: int, timeout_s: float) -> None:
    """Run rows of which two fail and one kills its actor once; stop in the middle, and go on."""
    library = folder / "fragile_layers.py"
    plan = make_plan(folder / "fragile.plan", library=library)
    rows = np.arange(1, num_rows + 1, dtype=np.float32)[:, None] * np.ones(4, np.float32)
    bad, deadly = [num_rows // 5, num_rows - 2], num_rows // 2
    rows[bad], rows[deadly] = -1, -3
    (folder / "in").mkdir()
    half = num_rows // 2 - 3
    np.save(folder / "in" / "a.npy", rows[:half])
    np.save(folder / "in" / "b.npy", rows[half:])
    words = [plan, folder / "in", folder / "out", library, shard_rows, kills]
    num_shards = num_rows // shard_rows

    def is_halfway() -> bool:
        return count_done(folder / "out") > num_shards // 3

    assert not run_apart("batch_program", words, folder / "first.log", timeout_s=timeout_s, until=is_halfway)
    done_before = count_done(folder / "out")
    assert 0 < done_before < num_shards
    assert run_apart("batch_program", words, folder / "second.log", timeout_s=timeout_s)
    summary = json.loads((folder / "second.log").read_text().splitlines()[-1])
    print(summary)
    assert (summary["rows"], summary["failed"], summary["killed"]) == (num_rows, 2, kills)
    assert summary["reused"] >= (done_before - 1) * shard_rows
    found = read_rows(folder / "out", "a.npy") | {
        half + index: row for index, row in read_rows(folder / "out", "b.npy").items()
    }
    assert sorted(found) == [index for index in range(num_rows) if index not in bad]
    got = np.stack([found[index] for index in sorted(found)])
    np.testing.assert_array_equal(got, rows[sorted(found)] * 2)
    failures = [(failure.file, failure.row) for failure in read_failures(folder / "out")]
    assert failures == [("a.npy", bad[0]), ("b.npy", bad[1] - half)]
    assert not list((folder / "out" / TRIES_FOLDER).iterdir())


@pytest.mark.timeout(600)
def test_every_row_is_there_once_although_actors_and_the_program_die(tmp_path: Path) -> None:
    run_rows(tmp_path, num_rows=2000, shard_rows=100, kills=1, timeout_s=280)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_hundred_thousand_rows(tmp_path: Path) -> None:
    run_rows(tmp_path, num_rows=100_000, shard_rows=1000, kills=5, timeout_s=900)
