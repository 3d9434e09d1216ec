"""Candidates that a plan carries for a device that was not there: chosen between on it, with nothing that builds."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import dovetail as dt
from dovetail.cli import main
from dovetail.plan.compatibility import check_plan
from dovetail.plan.container import PlanFile
from dovetail.plan.inspect import inspect_plan
from dovetail.plan.manifest import Manifest, PartitionRecord, decode_manifest
from dovetail.provider.interfaces import Candidate, Chosen, Tuner
from dovetail.provider.loader import get_default_options, set_default_options
from tests.cuda.host.fake_cudnn import PLANS
from tests.cuda.models import make_block, make_mlp

RNG = np.random.default_rng(3)


def build_far(model: onnx.ModelProto, folder: Path, *options: str, target: str = "sm_90", quiet: bool = True) -> Path:
    """A plan for a device that is not here, with its candidates."""
    path, plan, store = folder / "m.onnx", folder / "m.plan", get_default_options("cuda")
    onnx.save(model, path)
    arguments = ["build", str(path), "-o", str(plan), *("--providers", "cuda", "--target", target)]
    arguments += [*(options or ("--carry-candidates",)), *(["--quiet"] if quiet else [])]
    assert not main(arguments)
    set_default_options("cuda", store)
    path.unlink()
    return plan


def read(path: Path) -> Manifest:
    with PlanFile.open(path) as file:
        return decode_manifest(file.manifest)


def partition_of(manifest: Manifest) -> PartitionRecord:
    (found,) = [step.partition for step in manifest.programs[0].steps if step.partition is not None]
    return found


def statuses(manifest: Manifest) -> dict[str, str]:
    return {row.name: row.status for table in manifest.tuning for row in table.candidates}


def test_a_plan_is_tuned_where_its_device_is_without_its_model_or_a_compiler(paper: Any, tmp_path: Path) -> None:
    provider, driver = paper
    model, x = make_mlp(rows=64, width=64, depth=1), RNG.standard_normal((64, 64)).astype(np.float32)
    expected = dt.compile(model, providers=["cpu"])(x)
    plan = build_far(model, tmp_path, target=provider.device.fingerprint)
    carried = inspect_plan(plan)["carried"]
    assert (carried["partitions"], check_plan(plan).verdict) == (1, "usable")
    assert carried["size_bytes"] > 0
    assert not driver.launched
    with dt.load(plan, logger=_Silent()) as engine:
        np.testing.assert_allclose(engine(x), expected, rtol=1e-4, atol=1e-4)

    provider._toolbox.compiled.clear()
    dt.tune(plan, timing_cache=tmp_path / "timings")
    assert not provider._toolbox.compiled
    manifest = read(plan)
    found = statuses(manifest)
    assert {name for name in found if name.startswith("cuBLASLt")} == {"cuBLASLt 0", "cuBLASLt 1"}
    assert any(name.startswith("tile") for name in found)
    assert set(found.values()) == {"timed"}
    assert check_plan(plan).verdict == "optimal"
    assert partition_of(manifest).candidates is None
    with dt.load(plan) as engine:
        np.testing.assert_allclose(engine(x), expected, rtol=1e-4, atol=1e-4)


def test_a_tuned_plan_is_the_one_that_is_built_on_the_device(paper: Any, tmp_path: Path) -> None:
    """Timings of one serve the other, and what comes of them is the same payload."""
    provider, driver = paper
    model = make_mlp(rows=64, width=64, depth=2)
    timings = tmp_path / "timings"
    plan = build_far(model, tmp_path, target=provider.device.fingerprint)
    dt.tune(plan, timing_cache=timings)
    before = len(driver.launched)
    onnx.save(model, tmp_path / "m.onnx")
    built = tmp_path / "built.plan"
    arguments = [str(tmp_path / "m.onnx"), "-o", str(built), "--providers", "cuda", "--timing-cache", str(timings)]
    assert not main(["build", *arguments, "--quiet"])
    assert len(driver.launched) == before
    manifests = [read(path) for path in (plan, built)]
    tables = [[(t.name, [(c.name, c.time_us) for c in t.candidates]) for t in m.tuning] for m in manifests]
    assert tables[0] == tables[1]
    records = [partition_of(manifest) for manifest in manifests]
    digests = [manifest.blobs[record.payload].digest for manifest, record in zip(manifests, records, strict=True)]
    assert digests[0] == digests[1]
    assert sorted(records[0].code) == sorted(records[1].code)
    assert records[0].report is not None
    assert records[1].report is not None
    assert [node.tactic for node in records[0].report.nodes] == [node.tactic for node in records[1].report.nodes]


HEAD = '<ir_version: 10, opset_import: ["" : 21]> g '
CONVOLUTION = "(float[1,64,5,5] x, float[32,64,3,3] w) => (float[1,32,3,3] y) { c = Conv(x, w) y = Relu(c) }"
MODELS = {
    "split 2 early": lambda: onnx.parser.parse_model(HEAD + CONVOLUTION),
    "steps": lambda: make_block(batch=1, length=4, width=8, heads=1),
    "split 2": lambda: make_mlp(rows=4, width=512, depth=1),
    "cuBLASLt 1": lambda: make_mlp(rows=4, width=512, depth=1),
    "cuBLASLt 1 and a kernel": lambda: make_block(batch=1, length=4, width=128, heads=1),
}


@pytest.mark.parametrize("way", list(MODELS))
def test_every_candidate_brings_the_launches_and_the_memory_that_it_needs(
    paper: Any, tmp_path: Path, small_attention: None, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    model = MODELS[way]()
    inputs = [[dim.dim_value for dim in value.type.tensor_type.shape.dim] for value in model.graph.input]
    arrays = [RNG.standard_normal(shape).astype(np.float32) for shape in inputs]
    expected = dt.compile(model, providers=["cpu"])(*arrays)
    plan = build_far(model, tmp_path)
    monkeypatch.setattr("dovetail.build.tune.providers.ProviderTuner.choose", _prefer(way))
    dt.tune(plan)
    report = partition_of(read(plan)).report
    assert report is not None
    assert any(node.tactic.endswith(way) for node in report.nodes)
    with dt.load(plan, logger=_Silent()) as engine:
        np.testing.assert_allclose(engine(*arrays), expected, rtol=1e-3, atol=1e-3)


def _prefer(way: str) -> Callable[..., Chosen]:
    """A tuner that takes a candidate whose name ends so where there is one, else the first."""

    def choose(self: Tuner, question: str, candidates: list[Candidate], *, reference: Any = None) -> Chosen:
        named = [each.name for each in candidates if each.name.endswith(way)]
        return Chosen(name=(named or [candidates[0].name])[0], time_us=None)

    return choose


def test_variants_and_templates_of_tuned_plans_give_what_cpu_gives(
    paper: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The launches for one shape are chosen anew, those for any shape stay as they are."""
    model = onnx.parser.parse_model(
        f"{HEAD} (float[N,512] x, float[512,128] w) => (float[N,128] y) {{ p = MatMul(x, w) y = Relu(p) }}"
    )
    plan = build_far(model, tmp_path, "--carry-candidates", "--shapes", "x:1x512:4x512:8x512")
    before = partition_of(read(plan))
    assert before.candidates is not None
    monkeypatch.setattr("dovetail.build.tune.providers.ProviderTuner.choose", _prefer("split 2"))
    dt.tune(plan)
    reports = [before.report, partition_of(read(plan)).report]
    tactics = [[(node.name, node.tactic) for node in report.nodes] for report in reports if report is not None]
    assert [name for name, _ in tactics[0]] == [name for name, _ in tactics[1]]
    assert [new[1].endswith("split 2") for old, new in zip(*tactics, strict=True) if old != new] == [True]
    with dt.load(plan, logger=_Silent()) as engine:
        for count in (4, 3):
            x, w = (RNG.standard_normal(shape).astype(np.float32) for shape in ((count, 512), (512, 128)))
            right = dt.compile(model, providers=["cpu"])(x, w)
            np.testing.assert_allclose(engine(x, w), right, rtol=1e-3, atol=1e-3)


BLOCK = """(float[2,16,6,5] x, float[16,16,3,3] w, float[16] b) => (float[2,6,5,16] y) {
    c = Conv<pads=[1,1,1,1]>(x, w, b) r = Relu(c) y = Transpose<perm=[0,2,3,1]>(r) }"""


def test_cudnn_is_asked_on_the_device_and_its_plans_go_into_the_plan(
    paper: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library that was not there has candidates of its own, whose code the plan gets when it is tuned."""
    provider, driver = paper
    model = onnx.parser.parse_model(HEAD + BLOCK)
    monkeypatch.setattr("dovetail_cuda.lower.convolution._SMALL", 1)
    plan = build_far(model, tmp_path, target=provider.device.fingerprint)
    assert not [name for name in statuses(read(plan)) if name.startswith("cuDNN")]
    provider._toolbox.has_cudnn = True
    monkeypatch.setattr("dovetail.build.tune.providers.ProviderTuner.choose", _prefer(PLANS[1].tag))
    dt.tune(plan)
    record = partition_of(read(plan))
    assert record.report is not None
    assert any(node.tactic.endswith(PLANS[1].tag) for node in record.report.nodes)
    arrays = [RNG.standard_normal(shape).astype(np.float32) for shape in ((2, 16, 6, 5), (16, 16, 3, 3), (16,))]
    expected = dt.compile(model, providers=["cpu"])(*arrays)
    with dt.load(plan, logger=_Silent()) as engine:
        np.testing.assert_allclose(engine(*arrays), expected, rtol=1e-3, atol=1e-3)
    assert "convolution" in driver.launched


def test_candidates_keep_to_the_limit_and_what_is_left_out_is_told(paper: Any, tmp_path: Path, capsys: Any) -> None:
    model = make_mlp(rows=64, width=64, depth=2)
    whole = inspect_plan(build_far(model, tmp_path))["carried"]["size_bytes"]
    capsys.readouterr()
    plan = build_far(model, tmp_path, "--carry-candidates", str((whole - 1) / 2**20), quiet=False)
    assert 0 < inspect_plan(plan)["carried"]["size_bytes"] < whole
    assert "candidates are not carried: the limit is" in capsys.readouterr().err
    dt.tune(plan)
    assert len(statuses(read(plan))) > 1


def test_tuning_imports_nothing_that_builds() -> None:
    code = (
        "import sys; import dovetail_cuda.provider, dovetail_cuda.choose.tuning, dovetail.build.plan_tuning; "
        "print([n for n in sys.modules if n.partition('.')[0] in ('triton', 'onnx', 'onnx_ir', 'torch', 'cuda') or "
        "n.startswith(tuple('dovetail_cuda.' + room for room in ('graph', 'lower', 'compile', 'tune', 'emit')))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


class _Silent(dt.ILogger):
    def log(self, severity: Any, msg: str) -> None:
        """Nothing."""
