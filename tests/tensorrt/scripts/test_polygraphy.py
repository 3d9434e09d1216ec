"""Polygraphy, as it is on the registry, over the module: commands by their exit codes, and its Python API."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("polygraphy") is None, reason="polygraphy is not installed"),
]

MODEL = """
    <ir_version: 8, opset_import: ["" : 13]>
    small (float[N, 4] x) => (float[N, 4] y, float[N] z) <float[4] w = {1, 2, 3, 4}> {
        h = Relu(x)
        y = Mul(h, w)
        axes = Constant<value_ints=[1]>()
        z = ReduceSum<keepdims=0>(y, axes)
    }
"""
SHAPES = "--trt-min-shapes x:[1,4] --trt-opt-shapes x:[2,4] --trt-max-shapes x:[8,4]"
FEED = "--input-shapes x:[2,4]"
API = """
import numpy as np
from polygraphy.backend.trt import (
    CreateConfig, EngineFromNetwork, NetworkFromOnnxPath, Profile, SaveEngine, TrtRunner, engine_from_path
)
profile = Profile().add("x", (1, 4), (2, 4), (8, 4))
build = EngineFromNetwork(NetworkFromOnnxPath("model.onnx"), config=CreateConfig(profiles=[profile]))
x = np.float32([[-1, 1, 2, 3]])
with TrtRunner(SaveEngine(build, "model.engine")) as runner:
    outputs = runner.infer({"x": x})
np.testing.assert_array_equal(outputs["y"], np.float32([[0, 2, 6, 12]]))
with TrtRunner(engine_from_path("model.engine")) as runner:
    np.testing.assert_array_equal(runner.infer({"x": x})["z"], [20])
print("the API works")
"""


def _run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dovetail_tensorrt", *arguments]
    paths = (str(Path(path).resolve()) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=env, timeout=110, check=False)


def _tool() -> str:
    found = shutil.which("polygraphy", path=str(Path(sys.executable).parent))
    assert found is not None
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "model.onnx")
    return tmp_path


@pytest.mark.parametrize(
    ("command", "line"),
    [
        (f"run model.onnx --trt --onnxrt {SHAPES} {FEED} --save-engine e --save-timing-cache t --validate", "PASSED"),
        (f"run model.onnx --trt --onnxrt {SHAPES} {FEED} --trt-outputs mark all --onnx-outputs mark all", "PASSED"),
        (f"run model.onnx --trt --fp16 {SHAPES} {FEED}", "PASSED"),
        (f"run model.onnx --trt --int8 {SHAPES} {FEED}", "PASSED"),
        ("inspect model model.onnx --display-as=trt --show layers", "LayerType.REDUCE"),
        ("inspect capability model.onnx", "fully supported"),
        (f"convert model.onnx --convert-to trt -o e {SHAPES}", "Finished engine building"),
        ("template trt-network model.onnx -o network.py", "Writing script"),
        ("debug build model.onnx --until=1 --check true", "PASSED"),
    ],
)
def test_the_command_works(folder: Path, command: str, line: str) -> None:
    done = _run(folder, _tool(), *command.split())
    assert done.returncode == 0, done.stdout + done.stderr
    assert line in done.stdout


def test_its_api_works(folder: Path) -> None:
    (folder / "script.py").write_text(API, encoding="utf-8")
    done = _run(folder, "script.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the API works" in done.stdout
