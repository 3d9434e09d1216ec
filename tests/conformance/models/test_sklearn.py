"""Pipelines of scikit-learn, exported by skl2onnx, predict what scikit-learn predicts; probabilities come as dicts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

import dovetail as dt

FOLDER = Path(__file__).parents[2] / "data" / "sklearn"
PREDICTIONS = json.loads((FOLDER / "predictions.json").read_text())
PROVIDERS = pytest.mark.parametrize("providers", [None, ["cpu"]], ids=["default", "cpu"])


def _inputs(name: str) -> dict[str, Any]:
    given = PREDICTIONS[name]["inputs"]
    return {key: value if isinstance(value, dict) else _array(value) for key, value in given.items()}


def _array(rows: list[list[Any]]) -> Any:
    return np.array(rows, dtype=object if isinstance(rows[0][0], str) else np.float32)


def _check(name: str, results: dict[str, Any]) -> None:
    labels, maps = results["output_label"], results["output_probability"]
    assert labels.tolist() == PREDICTIONS[name]["labels"]
    expected = [dict(pairs) for pairs in PREDICTIONS[name]["probabilities"]]
    assert [list(entries) for entries in maps] == [list(entries) for entries in expected]
    for entries, wanted in zip(maps, expected, strict=True):
        assert entries == pytest.approx(wanted, abs=1e-5)
        assert {type(probability) for probability in entries.values()} == {float}


@PROVIDERS
@pytest.mark.parametrize("name", PREDICTIONS)
def test_predictions_are_those_of_scikit_learn(name: str, providers: list[str] | None, tmp_path: Path) -> None:
    engine = dt.compile(FOLDER / f"{name}.onnx", providers=providers)
    _check(name, engine(**_inputs(name)))
    engine.save(tmp_path / "model.plan")
    with dt.load(tmp_path / "model.plan") as again:
        _check(name, again(**_inputs(name)))
        _check(name, again(**_inputs(name)))


@PROVIDERS
@pytest.mark.parametrize("name", ["columns", "entries"])
def test_results_are_as_from_onnxruntime(name: str, providers: list[str] | None) -> None:
    session = ort.InferenceSession(FOLDER / f"{name}.onnx", providers=["CPUExecutionProvider"])
    label, maps = session.run(None, _inputs(name))
    results = dt.compile(FOLDER / f"{name}.onnx", providers=providers)(**_inputs(name))
    assert results["output_label"].tolist() == label.tolist()
    assert type(results["output_probability"]) is type(maps)
    for ours, theirs in zip(results["output_probability"], maps, strict=True):
        assert list(ours) == list(theirs)
        assert ours == pytest.approx(theirs, abs=1e-6)


def test_a_classifier_is_one_partition() -> None:
    """Maps that come out of ONNX Runtime need no step here; maps that go in do."""
    whole = dt.compile(FOLDER / "columns.onnx").manifest.programs[0]
    assert [(step.provider, step.kind) for step in whole.steps] == [("onnxruntime", "partition")]
    parts = dt.compile(FOLDER / "entries.onnx").manifest.programs[0]
    assert [step.provider for step in parts.steps] == ["cpu", "onnxruntime"]
    assert parts.steps[0].op == "DictVectorizer"
