"""The command line on models with maps: they are made up, read from files, shown, stored, compared and timed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dovetail.cli import main

MODELS = Path(__file__).parents[2] / "data" / "sklearn"
COLUMNS, ENTRIES = str(MODELS / "columns.onnx"), str(MODELS / "entries.onnx")
SHAPES = ["--shapes", "city:3x1,age:3x1,pay:3x1"]

Run = Callable[..., str]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command that succeeds; its output comes back."""

    def call(*words: str) -> str:
        code = main(list(words))
        shown = capsys.readouterr()
        assert code == 0, shown.err
        return shown.out

    return call


def _output(document: dict[str, Any]) -> dict[str, Any]:
    (row,) = [row for row in document["outputs"] if row["name"] == "output_probability"]
    return row


def test_run_shows_a_row_for_each_key(run: Run) -> None:
    shown = run("run", COLUMNS, *SHAPES)
    assert "output_probability[*]['no']" in shown
    assert "sequence of 3" in shown
    row = _output(json.loads(run("run", COLUMNS, *SHAPES, "--json")))
    assert [(item["name"], item["shape"]) for item in row["items"]] == [
        ("output_probability[*]['no']", [3]),
        ("output_probability[*]['yes']", [3]),
    ]
    assert sum(item["mean"] for item in row["items"]) == pytest.approx(1.0, abs=1e-5)


def test_run_stores_maps_as_keys_and_a_table(run: Run, tmp_path: Path) -> None:
    shown = run("run", COLUMNS, *SHAPES, "--save-outputs", str(tmp_path))
    files = [tmp_path / f"output_probability.{half}.npy" for half in ("keys", "values")]
    assert all(f"wrote {file}" in shown for file in files)
    keys, values = (np.load(file) for file in files)
    assert keys.tolist() == ["no", "yes"]
    assert (values.shape, values.dtype) == ((3, 2), np.float32)


def test_a_map_comes_from_a_file(run: Run, tmp_path: Path) -> None:
    predictions = json.loads((MODELS / "predictions.json").read_text())["entries"]
    entries = predictions["inputs"]["entries"]
    halves = {"entries.keys": np.array(list(entries)), "entries.values": np.array(list(entries.values()))}
    np.savez(tmp_path / "in.npz", **halves)
    document = json.loads(run("run", ENTRIES, "--inputs", str(tmp_path / "in.npz"), "--json"))
    means = [item["mean"] for item in _output(document)["items"]]
    assert means == pytest.approx([score for _, score in predictions["probabilities"][0]], abs=1e-5)


@pytest.mark.parametrize("model", [COLUMNS, ENTRIES])
@pytest.mark.parametrize("against", ["onnxruntime", "cpu"])
def test_compare(run: Run, model: str, against: str) -> None:
    shown = run("compare", model, "--against", against, "--layers")
    assert "pass  output_probability  float32  1x" in shown
    assert "close: 2 of 2 outputs" in shown


def test_bench(run: Run) -> None:
    document = json.loads(run("bench", ENTRIES, "--iterations", "3", "--json"))
    assert document["inputs"] == {"entries": [6]}


def test_a_plan_says_what_its_maps_are(run: Run, tmp_path: Path) -> None:
    plan = str(tmp_path / "a.plan")
    run("build", ENTRIES, "-o", plan)
    shown = run("inspect", plan)
    assert "map(string,tensor(float))" in shown
    assert "seq(map(int64,tensor(float)))" in shown
    assert json.loads(run("plan", "check", plan, "--json"))["verdict"] == "optimal"
