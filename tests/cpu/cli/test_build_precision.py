"""``dovetail build`` with types: what is printed, stored and shown again, and every mistake."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from dovetail.cli import main
from tests.support.precision_models import make_image_network, make_perceptron

SHAPES = ["--shapes", "x:4x3x24x24"]


@pytest.fixture
def images(tmp_path: Path) -> Path:
    onnx.save(make_image_network(), tmp_path / "images.onnx")
    folder = tmp_path / "batches"
    folder.mkdir()
    for seed in range(3):
        x = np.random.default_rng(seed).uniform(0, 1, (4, 3, 24, 24)).astype(np.float32)
        np.save(folder / f"{seed}.npy", x) if seed else np.savez(folder / f"{seed}.npz", x=x)
    return tmp_path


@pytest.fixture
def perceptron(tmp_path: Path) -> str:
    onnx.save(make_perceptron(), tmp_path / "m.onnx")
    return str(tmp_path / "m.onnx")


def _run(*args: Any) -> int:
    return main([str(arg) for arg in args])


def test_a_build_tells_types_reasons_and_errors(perceptron: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run("build", perceptron, "--fp16", "--keep", "head/*") == 0
    out = capsys.readouterr().out
    assert "3 layer(s) in fp16, 3 layer(s) in fp32" in out
    assert "1 in fp32: kept by 'head/*'" in out
    assert "Against fp32, on made-up inputs (1 sample(s))" in out
    assert _run("inspect", perceptron.replace(".onnx", ".plan"), "--layers") == 0
    out = capsys.readouterr().out
    assert "head/fc2 (MatMul): fp32" in out


def test_the_same_as_data(perceptron: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run("build", perceptron, "--fp16", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    rows = {row["layer"]: row for row in document["precision"]}
    assert rows["mean"]["type"] == "fp32"
    (output,) = document["comparison"]["outputs"]
    assert 0 < output["max_share"] < 0.01
    assert output["mean_abs"] <= output["max_abs"]


def test_int8_with_a_folder_and_a_cache(images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cache = images / "ranges.json"
    given = ["--int8", "--calib-data", images / "batches", "--calib-cache", cache, *SHAPES]
    assert _run("build", images / "images.onnx", *given) == 0
    assert "on calibration data (3 sample(s))" in capsys.readouterr().out
    assert _run("build", images / "images.onnx", "--int8", "--calib-cache", cache, *SHAPES, "--no-compare") == 0
    out = capsys.readouterr().out
    assert "13 layer(s) in int8" in out
    assert "Against fp32" not in out


def test_weights_alone(perceptron: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run("build", perceptron, "--weights", "int4", "--block", 16) == 0
    assert "2 layer(s) in int4 weights" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--keep", "fc1"], "--keep: this can have no effect without --fp16 or --bf16"),
        (["--no-compare"], "--no-compare: this can have no effect without --fp16"),
        (["--block", "32"], "--block: this can have no effect without --weights"),
        (["--calib-method", "error"], "--calib-method: this can have no effect without --int8"),
        (["--fp16", "--image", "x:resize=8"], "--image: this can have no effect without --calib-data"),
        (["--fp16", "--keep", "fc3"], "no layer is called 'fc3'"),
        (["--fp16", "--keep-op", "Conv"], "the network has no operator 'Conv'"),
        (["--fp16", "--io-types", "z:fp16"], "no input or output of fp32 is called 'z'"),
        (["--fp16", "--io-types", "x"], "not a name and a type"),
        (["--fp16", "--io-types", "x:fp17"], "there is no such type"),
        (["--fp16", "--block", "64"], "--block: this can have no effect without --weights"),
        (["--fp16", "--calib-method", "minmax"], "--calib-method: this can have no effect without --int8"),
        (["--weights", "int3"], "there is no such type"),
        (["--weights", "int4", "--block", "33"], "not a size of a block"),
        (["--weights", "int4", "--fp8"], "not both"),
        (["--int8"], "int8 needs the ranges of tensors"),
        (["--int8", "--calib-data", "nowhere"], "'nowhere': this names no input"),
        (["--bf16", "--providers", "onnxruntime"], "bf16 can have no effect"),
    ],
)
def test_each_mistake_is_told(
    perceptron: str, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert _run("build", perceptron, *options) != 0
    assert message in capsys.readouterr().err


def test_files_that_are_no_batches_are_named(images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build = ["build", images / "images.onnx", "--int8", "--calib-data", images / "batches"]
    (images / "batches" / "9.npy").write_bytes(b"not an array")
    assert _run(*build) != 0
    assert "9.npy" in capsys.readouterr().err


def test_made_up_calibration_data_has_the_shape_of_the_profile(
    images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--int8", "--calib-data", "x:uniform(0,1)", *SHAPES]
    assert _run("build", images / "images.onnx", *words) == 0
    assert "in int8" in capsys.readouterr().out


def test_other_files_beside_calibration_data_are_left_out(images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (images / "batches" / "notes.txt").write_text("taken on Monday")
    words = ["--int8", "--calib-data", images / "batches", *SHAPES]
    assert _run("build", images / "images.onnx", *words) == 0
    assert "notes.txt; they are left out" in capsys.readouterr().err
    assert _run("build", images / "images.onnx", *words, "--strict") == 2
    assert "--calib-data: 1 file(s) are no kind of input" in capsys.readouterr().err


def test_a_plan_is_compared_with_its_model_as_its_types_allow(
    perceptron: str, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = perceptron.replace(".onnx", ".plan")
    assert _run("build", perceptron, "--fp16", "--quiet") == 0
    for pair in ((plan, perceptron), (perceptron, plan)):
        assert _run("compare", *pair) == 0
        assert "layers compute in fp16, so an element may be off by 2%" in capsys.readouterr().out
    assert _run("compare", plan, perceptron, "--rtol", "1e-7") == 4
    assert "layers compute in" not in capsys.readouterr().out
