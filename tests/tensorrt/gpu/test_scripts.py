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


@pytest.mark.parametrize("call", ["execute_v2", "execute_async_v3"])
def test_runs_without_a_stream_keep_order_with_the_default_one(call: str) -> None:
    pytest.importorskip("cupy", reason="needs cupy")
    pytest.importorskip("torch", reason="needs torch")
    done = run(Path(__file__).parent / "samples/default_stream.py", call)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"The default stream keeps order with {call}: correct" in done.stdout


def test_a_script_may_have_a_context_of_its_own() -> None:
    pytest.importorskip("cuda.bindings", reason="needs cuda-bindings")
    done = run(Path(__file__).parent / "samples/own_context.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "A context of its own: correct" in done.stdout
