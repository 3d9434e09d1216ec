"""``dovetail batch`` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dovetail.cli import main
from tests.serve.batch.support import write_arrays, write_lines


def test_it_says_what_it_did(plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_arrays(tmp_path / "in" / "a.npy", 25)
    words = ["batch", str(plan), str(tmp_path / "in"), str(tmp_path / "out"), "--shard-rows", "10"]
    assert main(words) == 0
    assert "25 of 25 rows have results" in capsys.readouterr().out
    assert main([*words, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["rows"], document["reused"], document["failed"]) == (25, 25, 0)
    assert document["files"] == [f"a.npy.{index:05}.npz" for index in range(3)]


def test_rows_that_failed_are_another_code(plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_lines(tmp_path / "a.jsonl", [{"x": [0, 0, 0, 0], "id": 7}, "bad"])
    words = ["batch", str(plan), str(tmp_path / "a.jsonl"), str(tmp_path / "out"), "--keep", "id"]
    assert main(words) == 4
    assert "1 of 2 rows have results\n" in (shown := capsys.readouterr().out)
    assert "\n1 row failed: " in shown
    assert main(words) == 4
    assert "1 of 2 rows have results; 2 were run before\n" in capsys.readouterr().out
    assert json.loads((tmp_path / "out" / "a.jsonl.00000.jsonl").read_text())["id"] == 7


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--cpus", "1"], "--cpus: this is for actors of Ray\n  fix: add --ray ADDRESS"),
        (["--batch-size", "0"], "a whole number above 0"),
        (["--image", "z:resize=3"], "there is no input 'z'"),
        (["--keep", "id"], "no columns to keep"),
    ],
)
def test_mistakes_are_one_message(
    plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    write_arrays(tmp_path / "in" / "a.npy", 5)
    assert main(["batch", str(plan), str(tmp_path / "in"), str(tmp_path / "out"), *words]) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_without_ray_it_says_how_to_get_it(
    plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    write_arrays(tmp_path / "in" / "a.npy", 5)
    assert main(["batch", str(plan), str(tmp_path / "in"), str(tmp_path / "out"), "--ray", "local"]) == 6
    assert "pip install 'dovetail-serve[ray]'" in capsys.readouterr().err


def test_without_pyarrow_it_says_how_to_get_it(
    plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    assert main(["batch", str(plan), str(tmp_path / "a.parquet"), str(tmp_path / "out")]) == 6
    assert "pip install 'dovetail-serve[parquet]'" in capsys.readouterr().err
