"""Scripts for TensorRT's API on a CUDA device: the same as on a CPU, and plugins that use libraries of devices."""

from __future__ import annotations

from pathlib import Path

import pytest

from dovetail_tensorrt.cudart import has_device
from tests.tensorrt.scripts.test_scripts import LINES, SAMPLES, run

pytestmark = pytest.mark.skipif(not has_device(), reason="needs a CUDA device")

HOST = {
    "plugin_v3_circ_pad.py": "its enqueue reads by NumPy",
    "pycuda_inference.py": "needs pycuda, and a device with it",
    "timing_cache.py": "its enqueue reads by NumPy",
}
"""Scripts that are for a host, and why."""


@pytest.mark.parametrize("name", sorted(LINES.keys() - HOST.keys()))
def test_the_script_prints_its_line(name: str) -> None:
    done = run(SAMPLES / name)
    assert done.returncode == 0, done.stdout + done.stderr
    assert LINES[name] in done.stdout


@pytest.mark.parametrize("library", ["cupy", "torch", "triton"])
def test_a_plugin_uses_the_pointers_and_the_stream_that_it_gets(library: str) -> None:
    pytest.importorskip(library, reason=f"needs {library}")
    done = run(Path(__file__).parent / "samples/plugin_on_stream.py", library)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"Scaled by {library} on a stream: correct" in done.stdout
