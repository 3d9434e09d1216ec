"""Plugins in C++ with kernels of CUDA, compiled by nvcc: on the device, on its stream, in captured graphs."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import dovetail as dt
from dovetail.errors import PluginError
from dovetail.plugin.registry import get_plugin_registry

ROOT = Path(__file__).parents[3]
INCLUDE = Path(dt.__file__).parent / "include"
SOURCE = Path(__file__).parent / "sources/scale_plugins.cu"
X = np.random.default_rng(4).standard_normal((3, 700)).astype(np.float32)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled plugins."""
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("there is no nvcc here")
    path = tmp_path_factory.mktemp("native") / "libscale.so"
    folders = [f"-I{folder}" for folder in (INCLUDE, ROOT / "examples/cpp")]
    options = ["-std=c++17", "-shared", "-Xcompiler", "-fPIC", "-arch=sm_90", "-diag-suppress", "997", *folders]
    subprocess.run([nvcc, *options, str(SOURCE), "-o", str(path)], check=True)
    return path


@pytest.fixture
def loaded(library: Path) -> Iterator[Path]:
    """The library in the registry of the process."""
    registry = get_plugin_registry()
    handle = registry.load_library(library)
    yield library
    registry.deregister_library(handle)


def _make_model(op: str, factor: float) -> onnx.ModelProto:
    text = f"""<ir_version: 10, opset_import: ["" : 21, "own" : 1]> g (float[3,700] x) => (float[3,700] y) {{
        a = Relu(x) b = own.{op}<factor={factor}>(a) y = Neg(b) }}"""
    return onnx.parser.parse_model(text)


@pytest.mark.parametrize("op", ["CudaScale", "CudaScaleV2"])
def test_a_plugin_runs_on_the_device(cuda: Any, loaded: Path, op: str) -> None:
    engine = dt.compile(_make_model(op, 3.0), providers=["cuda", "cpu"])
    assert [(step.kind, step.provider) for step in engine.manifest.programs[0].steps] == [
        *(("partition", "cuda"), ("plugin", "cuda"), ("partition", "cuda"))
    ]
    for _ in range(4):  # the first runs are launched, the others replayed
        np.testing.assert_allclose(engine(X), -3.0 * np.maximum(X, 0), rtol=1e-6)


def test_cuda_code_is_refused_without_the_device_provider(cuda: Any, loaded: Path) -> None:
    with pytest.raises(PluginError, match="contains CUDA code, and the plugin would run on the host"):
        dt.compile(_make_model("CudaScale", 3.0), providers=["cpu"])


def test_a_plan_carries_the_library(cuda: Any, loaded: Path, tmp_path: Path) -> None:
    config = dt.BuilderConfig()
    config.providers, config.plugins_to_serialize = ["cuda", "cpu"], [str(loaded)]
    engine = dt.compile(_make_model("CudaScale", 5.0), config=config)
    engine.save(tmp_path / "m.plan")
    program = f"""
import numpy as np, dovetail as dt
runtime = dt.Runtime()
runtime.engine_host_code_allowed = True
engine = runtime.deserialize_cuda_engine(open({str(tmp_path / "m.plan")!r}, "rb").read())
x = np.ones((3, 700), np.float32)
for _ in range(3):
    np.testing.assert_allclose(engine(x), -5.0 * x)
print("carried")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout.strip() == "carried", done.stderr


@pytest.mark.parametrize("op", ["CudaScale", "CudaScaleV2"])
def test_the_checker_judges_it_on_the_device(cuda: Any, library: Path, op: str) -> None:
    command = [sys.executable, "-m", "dovetail", "check", f"{library}:{op}", "--provider", "cuda"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
