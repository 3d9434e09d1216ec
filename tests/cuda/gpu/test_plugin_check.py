"""Plugins on a GPU: those of the documentation keep the contract there, and run in an engine; and the provider kit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import dovetail as dt
from dovetail.testing import check_provider

pytest.importorskip("torch", reason="needs PyTorch with CUDA")
pytest.importorskip("cupy", reason="needs CuPy")

LIBRARY = Path(__file__).parents[3] / "examples" / "plugins" / "device_scale.py"
PLUGINS = ("CupyScale", "TritonScale")
OUTSIDE = """
import cupy, numpy as np
from device_scale import CupyScale, ScaleCreator, _open


class TooFar(CupyScale):
    def scale(self, source, target, shape, stream):
        super().scale(source, target, shape, stream)
        with cupy.cuda.ExternalStream(stream):
            _open(target, (shape[0] * shape[1] + 1,))[-1:] = np.float32(7)


def get_creators():
    return [ScaleCreator(TooFar)]
"""


def _check(target: str, folder: Path) -> tuple[int, Any]:
    options = ["--provider", "cuda", "--shapes", "4x8", "5x300", "--fields", "factor=3", "--timeout", "60", "--json"]
    command = [sys.executable, "-m", "dovetail", "check", target, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, cwd=folder, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.mark.parametrize("name", PLUGINS)
def test_a_plugin_keeps_the_contract_on_the_device(name: str, tmp_path: Path) -> None:
    code, report = _check(f"{LIBRARY}:{name}", tmp_path)
    assert code == 0, [rule for rule in report["rules"] if rule["status"] == "failed"]
    assert not any("checked on the host" in note for note in report["notes"]), report["notes"]
    assert {rule["id"] for rule in report["rules"] if rule["status"] == "passed"} >= {"R40", "R42", "R44", "R55", "R65"}


def test_a_write_behind_the_end_is_found_on_the_device(tmp_path: Path) -> None:
    (tmp_path / "device_scale.py").write_text(LIBRARY.read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "too_far.py").write_text(OUTSIDE, encoding="utf-8")
    code, report = _check("too_far.py:TooFar", tmp_path)
    assert code == 2
    assert "R42" in {rule["id"] for rule in report["rules"] if rule["status"] == "failed"}


@pytest.mark.parametrize("name", PLUGINS)
def test_it_runs_between_kernels(cuda: Any, name: str) -> None:
    registry = dt.PluginRegistry(parent=dt.get_plugin_registry())
    registry.load_library(str(LIBRARY))
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21, "trt.plugins": 1]> g (float[N,8] x) => (float[N,8] y)'
        f"{{ a = Exp(x) b = trt.plugins.{name}<factor=3.0>(a) y = Neg(b) }}"
    )
    engine = dt.compile(model, providers=["cuda", "cpu"], registry=registry)
    assert {step.provider for step in engine.manifest.programs[0].steps} == {"cuda"}
    for rows in (4, 1, 4, 4):
        x = np.random.default_rng(rows).standard_normal((rows, 8)).astype(np.float32)
        np.testing.assert_allclose(engine(x), -3 * np.exp(x), rtol=1e-4)


def test_the_kit_finds_nothing_wrong(cuda: Any) -> None:
    report = check_provider("cuda")
    assert report.ok, "\n".join(f"{o.rule.id}: {o.message}" for o in report.outcomes if o.status == "failed")
