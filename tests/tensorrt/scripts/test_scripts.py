"""Scripts in the style of public samples run as they are, by ``python -m dovetail_tensorrt``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SAMPLES = Path(__file__).parent / "samples"
LINES = {
    "network_api_mnist.py": "PASSED",
    "onnx_dynamic_shapes.py": "Inference succeeded for batches up to 16",
    "plugin_v3_circ_pad.py": "Inference result is correct!",
    "engine_refit.py": "Engine refitted successfully",
    "stream_writer.py": "Serialized engine through a stream: True",
    "progress_monitor.py": "Progress was told in several steps, and a build was cancelled",
    "output_allocator_nonzero.py": "Output allocator test passed",
    "timing_cache.py": "0 runs in the second build",
    "weight_stripping.py": "Engine with weights given back is correct",
    "debug_tensors.py": "Debug tensors were seen",
    "pycuda_inference.py": "pycuda inference is correct",
}


def run(script: Path, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a script in a process of its own, where no module of the tests is imported."""
    command = [sys.executable, "-m", "dovetail_tensorrt", str(script), *arguments]
    paths = os.pathsep.join(path and str(Path(path).resolve()) for path in os.environ.get("PYTHONPATH", "").split(":"))
    env = {**os.environ, "PYTHONPATH": paths}
    return subprocess.run(command, capture_output=True, text=True, timeout=100, cwd=cwd, env=env, check=False)


def test_every_sample_is_run() -> None:
    assert {path.name for path in SAMPLES.glob("*.py")} == {*LINES, "common.py"}


QUICK = ("plugin_v3_circ_pad.py", "onnx_dynamic_shapes.py")
"""One by the network API and plugins and one by the parser; each script starts a process of its own."""


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in LINES]
)
def test_the_script_prints_its_line(name: str) -> None:
    done = run(SAMPLES / name)
    assert done.returncode == 0, done.stdout + done.stderr
    assert LINES[name] in done.stdout


@pytest.mark.slow
def test_arguments_reach_the_script() -> None:
    done = run(SAMPLES / "onnx_dynamic_shapes.py", "--max-batch", "7")
    assert done.returncode == 0, done.stderr
    assert "batches up to 7" in done.stdout
