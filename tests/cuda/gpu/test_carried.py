"""A plan that was built for the device as if it were not there, tuned on it by the candidates that it carries."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import dovetail as dt
from dovetail.build.builder import Builder
from dovetail.network.importer.importer import import_model
from dovetail.plan.compatibility import check_plan
from dovetail.plan.container import write_plan
from dovetail.plan.inspect import inspect_plan
from dovetail.plan.manifest import encode_manifest
from tests.cuda.models import make_block, make_mlp

CONVOLUTION = """<ir_version: 10, opset_import: ["" : 21]> g (float16[2,64,28,28] x, float16[64,64,3,3] w)
    => (float16[2,64,28,28] y) { c = Conv<pads=[1,1,1,1]>(x, w) y = Relu(c) }"""
MODELS = {
    "mlp": lambda: make_mlp("float16", 256, 512),
    "block": lambda: make_block("float16", 2, 128, 256, heads=4, depth=2),
    "convolution": lambda: onnx.parser.parse_model(CONVOLUTION),
}
BLOCKED = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("onnx", "onnx_ir", "onnxscript", "triton", "torch"):
            raise ImportError(name)
sys.meta_path.insert(0, Blocked())
from dovetail.provider.loader import has_provider, register_provider
from dovetail_cuda.provider import CudaFactory
if not has_provider("cuda"):
    register_provider(CudaFactory())
import dovetail
dovetail.tune(sys.argv[1], timing_cache=sys.argv[2])
"""


@pytest.mark.parametrize("kind", list(MODELS))
def test_a_plan_is_tuned_with_nothing_that_builds(cuda: Any, kind: str, tmp_path: Path, capsys: Any) -> None:
    model, plan, timings = MODELS[kind](), tmp_path / "m.plan", tmp_path / "timings"
    size = _build_far(model, plan, cuda.device.fingerprint)
    arrays = [_draw(value) for value in model.graph.input]
    with dt.load(plan) as engine:
        default = engine(*arrays)
    subprocess.run([sys.executable, "-c", BLOCKED, str(plan), str(timings)], check=True, timeout=400)
    assert check_plan(plan).verdict == "optimal"
    with dt.load(plan) as engine:
        tuned = engine(*arrays)
        assert np.array_equal(engine(*arrays), tuned)
        rows = [row for table in engine.manifest.tuning for row in table.candidates if row.chosen]
    assert rows
    assert {row.status for row in rows} == {"timed"}
    assert _error(tuned, default) < 5e-3
    with capsys.disabled():
        names = ", ".join(f"{row.name} {row.time_us} us" for row in rows)
        print(f"\n{kind}: carried {size / 2**20:.1f} MiB, left {plan.stat().st_size / 2**20:.1f}; {names}")


def _build_far(model: onnx.ModelProto, plan: Path, target: str) -> int:
    """Write a plan for a target, and tell how much of it are candidates."""
    config = dt.BuilderConfig()
    config.providers = ["cuda", "cpu"]
    config.provider_options = {"cuda": {"target": target}}
    config.candidate_bytes = 256 << 20
    built = Builder().build_plan(import_model(model), config, is_open=True)
    write_plan(plan, encode_manifest(built.manifest), built.blobs)
    return int(inspect_plan(plan)["carried"]["size_bytes"])


def _draw(value: onnx.ValueInfoProto) -> Any:
    shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
    return np.random.default_rng(5).standard_normal(shape).astype(np.float16)


def _error(result: Any, reference: Any) -> float:
    wide, right = result.astype(np.float64), reference.astype(np.float64)
    return float(np.linalg.norm(wide - right) / np.linalg.norm(right))
