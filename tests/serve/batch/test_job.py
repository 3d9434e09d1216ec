"""A batch from beginning to end: every row once, whatever happened in between."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from dovetail.errors import DovetailError, InputError, ResourceError, UsageError
from dovetail_serve.batch import BatchJob, run_batch
from dovetail_serve.batch.engines import load_plan
from dovetail_serve.batch.journal import JOURNAL
from dovetail_serve.batch.shard_run import ShardRunner
from dovetail_serve.batch.shards import Shard, ShardRecord
from tests.serve.batch.support import make_job, make_plan, read_failures, read_rows, write_arrays, write_lines
from tests.support.odd_files import ODD_KINDS, make_odd_file


@pytest.fixture
def source(tmp_path: Path) -> Path:
    write_arrays(tmp_path / "in" / "a.npy", 35)
    return tmp_path / "in"


def stop_after(count: int, error: BaseException) -> object:
    """Runs shards in this process, and raises after some of them."""

    def run(job: BatchJob, shards: Sequence[Shard]) -> Iterator[ShardRecord]:
        with load_plan(job.plan) as engine:
            runner = ShardRunner(engine, job)
            for shard in shards[:count]:
                yield runner.run(shard)
            runner.run(shards[count])  # its file is there, and the journal does not know
            raise error

    return run


def test_every_row_has_its_result_in_order(plan: Path, source: Path, tmp_path: Path) -> None:
    rows = write_arrays(source / "sub" / "b.npy", 7, first=100)
    told: list[tuple[int, int]] = []
    result = run_batch(make_job(plan, source, tmp_path / "out"), tell=lambda *args: told.append(args))
    assert (result.num_rows, result.num_failed, result.num_reused) == (42, 0, 0)
    assert result.outputs == [f"a.npy.{index:05}.npz" for index in range(4)] + ["sub/b.npy.00000.npz"]
    found = read_rows(tmp_path / "out", "a.npy")
    assert sorted(found) == list(range(35))
    np.testing.assert_array_equal(found[34], np.full(4, 34.0**2))
    np.testing.assert_array_equal(read_rows(tmp_path / "out" / "sub", "b.npy")[6], rows[6] ** 2)
    assert told[0] == (0, 42)
    assert told[-1] == (42, 42)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError()])
def test_a_batch_that_was_stopped_goes_on(plan: Path, source: Path, tmp_path: Path, error: BaseException) -> None:
    job = make_job(plan, source, tmp_path / "out")
    with pytest.raises(type(error)):
        run_batch(job, run_shards=stop_after(2, error))  # type: ignore[arg-type]
    assert sorted(read_rows(tmp_path / "out", "a.npy")) == list(range(30))
    result = run_batch(job)
    assert (result.num_rows, result.num_reused) == (35, 20)
    assert sorted(read_rows(tmp_path / "out", "a.npy")) == list(range(35))
    assert run_batch(job).num_reused == 35


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_journal_that_a_crash_cut_off_is_read(plan: Path, source: Path, tmp_path: Path, cut: int) -> None:
    job = make_job(plan, source, tmp_path / "out")
    run_batch(job)
    journal = tmp_path / "out" / JOURNAL
    journal.write_bytes(journal.read_bytes()[:-cut])
    assert run_batch(job).num_reused == 30
    assert run_batch(job).num_reused == 35


def test_a_result_file_that_is_gone_is_made_again(plan: Path, source: Path, tmp_path: Path) -> None:
    job = make_job(plan, source, tmp_path / "out")
    run_batch(job)
    (tmp_path / "out" / "a.npy.00001.npz").unlink()
    assert run_batch(job).num_reused == 25
    assert sorted(read_rows(tmp_path / "out", "a.npy")) == list(range(35))


def test_files_that_came_later_are_run_alone(plan: Path, source: Path, tmp_path: Path) -> None:
    job = make_job(plan, source, tmp_path / "out")
    run_batch(job)
    write_arrays(source / "b.npy", 5)
    result = run_batch(job)
    assert (result.num_rows, result.num_reused) == (40, 35)


def test_a_file_that_changed_is_told(plan: Path, source: Path, tmp_path: Path) -> None:
    job = make_job(plan, source, tmp_path / "out")
    run_batch(job)
    write_arrays(source / "a.npy", 36)
    with pytest.raises(InputError, match="changed since"):
        run_batch(job)
    assert run_batch(job, restart=True).num_reused == 0


def test_results_of_another_job_are_not_mixed(plan: Path, source: Path, tmp_path: Path) -> None:
    run_batch(make_job(plan, source, tmp_path / "out"))
    with pytest.raises(UsageError, match="another option"):
        run_batch(make_job(plan, source, tmp_path / "out", shard_rows=11))
    other = make_plan(tmp_path / "other.plan", ("m", 4))
    with pytest.raises(UsageError, match="another plan"):
        run_batch(make_job(other, source, tmp_path / "out"))


def test_a_folder_of_others_is_left_alone(plan: Path, source: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("mine")
    with pytest.raises(UsageError, match="no results of a batch"):
        run_batch(make_job(plan, source, tmp_path / "out"))


def test_one_batch_at_a_time(plan: Path, source: Path, tmp_path: Path) -> None:
    job = make_job(plan, source, tmp_path / "out")

    def run_inside(job: BatchJob, shards: Sequence[Shard]) -> Iterator[ShardRecord]:
        run_batch(job)
        yield from ()

    with pytest.raises(ResourceError, match="another batch"):
        run_batch(job, run_shards=run_inside)


def test_rows_that_fail_are_kept_aside(plan: Path, tmp_path: Path) -> None:
    rows = [{"x": [i, 0, 0, 0], "id": f"r{i}"} for i in range(25)]
    lines = [*rows[:5], "{nonsense", {"x": [1, 2]}, {"id": "nothing"}, {"x": [1, "two", 3, 4]}, "[]", *rows[5:]]
    write_lines(tmp_path / "in" / "a.jsonl", lines)
    result = run_batch(make_job(plan, tmp_path / "in", tmp_path / "out"))
    failures = read_failures(tmp_path / "out")
    assert [failure.row for failure in failures] == [5, 6, 7, 8, 9]
    assert result.num_failed == 5
    texts = ("no JSON", "shape of a row", "there is no 'x'", "does not fit", "no values by name")
    for failure, text in zip(failures, texts, strict=True):
        assert text in failure.error
        assert failure.error.startswith(f"'a.jsonl', row {failure.row}")
    found = read_rows(tmp_path / "out", "a.jsonl")
    assert sorted(found) == [*range(5), *range(10, 30)]
    assert [found[index][0] for index in sorted(found)] == [i * i for i in range(25)]


def test_a_row_that_the_model_refuses_does_not_take_its_batch_along(fragile: tuple[Path, Path], tmp_path: Path) -> None:
    plan, library = fragile
    rows = write_arrays(tmp_path / "in" / "a.npy", 30)
    rows[[3, 17]] = -1
    np.save(tmp_path / "in" / "a.npy", rows)
    job = make_job(plan, tmp_path / "in", tmp_path / "out", plugins=[library])
    assert run_batch(job).num_failed == 2
    assert [failure.row for failure in read_failures(tmp_path / "out")] == [3, 17]
    assert sorted(read_rows(tmp_path / "out", "a.npy")) == [i for i in range(30) if i not in (3, 17)]
    assert run_batch(job).num_reused == 30
    assert run_batch(job, retry_failed=True).num_reused == 10


def test_too_many_failures_stop_the_batch_and_it_can_go_on(plan: Path, tmp_path: Path) -> None:
    write_lines(tmp_path / "in" / "a.jsonl", [{"x": [0, 0, 0, 0]}, *["bad"] * 50, {"x": [1, 1, 1, 1]}])
    job = make_job(plan, tmp_path / "in", tmp_path / "out", max_failures=15)
    with pytest.raises(UsageError, match="19 rows failed"):
        run_batch(job)
    assert len(read_failures(tmp_path / "out")) == 19
    more = make_job(plan, tmp_path / "in", tmp_path / "out", max_failures=None)
    result = run_batch(more)
    assert (result.num_failed, result.num_reused) == (50, 20)


def test_a_shard_without_results_has_no_file(plan: Path, tmp_path: Path) -> None:
    write_lines(tmp_path / "in" / "a.jsonl", [{"x": [0, 0, 0, 0]}] * 10 + ["bad"] * 10)
    assert run_batch(make_job(plan, tmp_path / "in", tmp_path / "out")).outputs == ["a.jsonl.00000.jsonl"]


def test_rows_of_different_shapes_go_together_with_their_like(tmp_path: Path) -> None:
    plan = make_plan(tmp_path / "free.plan", ("n", "k"))
    rows = [{"x": list(range(1 + index % 3))} for index in range(25)]
    write_lines(tmp_path / "in" / "a.jsonl", rows)
    run_batch(make_job(plan, tmp_path / "in", tmp_path / "out", shard_rows=100))
    found = read_rows(tmp_path / "out", "a.jsonl")
    assert [found[index].tolist() for index in range(25)] == [[i * i for i in row["x"]] for row in rows]
    run_batch(make_job(plan, tmp_path / "in", tmp_path / "packed", shard_rows=100, format="npz"))
    with np.load(tmp_path / "packed" / "a.jsonl.00000.npz") as arrays:
        assert arrays["y.shapes"].tolist() == [[len(row["x"])] for row in rows]
        assert arrays["y.elements"].tolist() == [i * i for row in rows for i in row["x"]]
        assert arrays["s"].shape == (25,)


def test_a_profile_decides_how_many_rows_run_at_once(tmp_path: Path) -> None:
    plan = make_plan(tmp_path / "bound.plan", shapes={"x": ((4, 4), (8, 4), (8, 4))})
    write_arrays(tmp_path / "in" / "a.npy", 35)
    result = run_batch(make_job(plan, tmp_path / "in", tmp_path / "out"))
    assert result.num_failed == 0
    assert sorted(read_rows(tmp_path / "out", "a.npy")) == list(range(35))
    with pytest.raises(UsageError, match="4 to 8"):
        run_batch(make_job(plan, tmp_path / "in", tmp_path / "other", batch_size=9))


def refuse(plan: Path, source: Path, target: Path, kind: type[DovetailError], text: str, **options: object) -> None:
    """The batch is refused with one message, and nothing has been made."""
    with pytest.raises(kind, match=text):
        run_batch(make_job(plan, source, target, **options))
    assert not target.exists()


def test_what_cannot_work_is_told_before_anything_runs(plan: Path, source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    refuse(plan, tmp_path / "nowhere", out, UsageError, "no such file or folder")
    refuse(plan, source, source / "out", UsageError, "among the inputs")
    refuse(plan.with_suffix(".onnx"), source, out, InputError, "dovetail build square.onnx")
    refuse(tmp_path / "none.plan", source, out, InputError, "no such file")
    refuse(plan, source, out, UsageError, "no columns to keep", keep=("id",))
    refuse(plan, source, out, UsageError, "no such format", format="xml")
    refuse(plan, source, out, UsageError, "at least one", instances=0)
    (tmp_path / "empty").mkdir()
    refuse(plan, tmp_path / "empty", out, InputError, "no rows to run")
    damaged = tmp_path / "damaged.plan"
    damaged.write_bytes(plan.read_bytes()[:-40])
    refuse(damaged, source, out, DovetailError, "plan")


def test_files_that_do_not_fit_are_told_before_anything_runs(plan: Path, tmp_path: Path) -> None:
    out, folder = tmp_path / "out", tmp_path / "in"
    folder.mkdir()
    wrong = {
        "the shape of a row": np.zeros((5, 3), np.float32),
        "store it as float32": np.zeros((5, 4), np.float64),
        "numbers or texts": np.array([{}] * 4),
        "the same rows": np.float32(1),
    }
    for text, array in wrong.items():
        np.save(folder / "a.npy", array, allow_pickle=True)
        refuse(plan, folder, out, InputError, text)
    (folder / "a.npy").write_bytes(b"\x93NUMPY\x01\x00garbage")
    refuse(plan, folder, out, InputError, "not a .npy file")
    (folder / "a.npy").unlink()
    np.savez(folder / "a.npz", z=np.zeros((5, 4), np.float32))
    refuse(plan, folder, out, InputError, "there is no array 'x'")
    (folder / "a.npz").write_bytes(b"PK\x03\x04garbage")
    refuse(plan, folder, out, InputError, "not a .npz file")
    (folder / "a.npz").unlink()
    write_lines(folder / "a.jsonl", ["x"] * 20)
    refuse(plan, folder, out, InputError, "none of the first 8")


def test_a_row_that_fails_stops_no_other_wherever_it_stands(plan: Path, tmp_path: Path) -> None:
    write_lines(tmp_path / "in" / "a.jsonl", ["bad"])
    write_lines(tmp_path / "in" / "b.jsonl", [{"x": [0, 0, 0, 0]}])
    result = run_batch(make_job(plan, tmp_path / "in", tmp_path / "out"))
    assert (result.num_rows, result.num_failed) == (2, 1)


def test_pipes_and_hidden_files_are_not_waited_for(plan: Path, source: Path, tmp_path: Path) -> None:
    (source / ".hidden.npy").write_bytes(b"")
    (source / "notes.txt").write_text("no rows")
    assert run_batch(make_job(plan, source, tmp_path / "out")).skipped == ["notes.txt"]
    os.mkfifo(source / "pipe.jsonl")
    with pytest.raises(InputError, match="not a regular file"):
        run_batch(make_job(plan, source, tmp_path / "out"))
    (source / "pipe.jsonl").unlink()
    os.mkfifo(source / "pipe.npy")
    with pytest.raises(InputError, match="not a regular file"):
        run_batch(make_job(plan, source, tmp_path / "other"))


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", ODD_KINDS)
def test_an_odd_file_in_the_place_of_the_journal_is_refused(
    plan: Path, source: Path, tmp_path: Path, kind: str
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "elsewhere").write_bytes(b"")
    make_odd_file(tmp_path / "out" / "batch.jsonl", kind, tmp_path / "elsewhere")
    with pytest.raises(UsageError, match=r"cannot be written|not a regular file|is a link|no results of a batch"):
        run_batch(make_job(plan, source, tmp_path / "out"))
    assert (tmp_path / "elsewhere").read_bytes() == b""
