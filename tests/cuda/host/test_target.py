"""Plans for devices that are not here: built with nothing timed, and run where the device is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import dovetail as dt
from dovetail.cli import main
from dovetail.errors import ProviderError
from dovetail.plan.compatibility import check_plan
from dovetail.plan.untimed import count_untimed
from dovetail.provider.loader import (
    get_default_options,
    get_provider,
    set_default_options,
)
from dovetail.testing.provider_kit.models import MODELS, Case
from dovetail_cuda.provider import CudaFactory
from dovetail_cuda.target import find_target
from tests.cuda.models import make_mlp

X = np.random.default_rng(3).standard_normal((64, 64)).astype(np.float32)


def test_targets_are_architectures_or_what_devices_are_called() -> None:
    h200 = find_target("NVIDIA H200-sm_90-132")
    assert (h200.name, h200.capability, h200.multiprocessors) == ("NVIDIA H200", (9, 0), 132)
    assert find_target("sm_100").capability == (10, 0)
    with pytest.raises(ProviderError, match=r"there is no such target; expected sm_80, .*, got 'hopper'"):
        find_target("hopper")


def test_a_plan_for_a_target_runs_where_the_device_is(paper: Any, tmp_path: Path) -> None:
    model = make_mlp(rows=64, width=64)
    path, plan = tmp_path / "m.onnx", tmp_path / "m.plan"
    onnx.save(model, path)
    _, driver = paper
    assert not main(["build", str(path), "-o", str(plan), "--providers", "cuda", "--target", "sm_90", "--quiet"])
    set_default_options("cuda", {})
    assert not driver.launched
    engine = dt.load(str(plan))
    assert {step.provider for step in engine.manifest.programs[0].steps} == {"cuda"}
    chosen = [row for table in engine.manifest.tuning for row in table.candidates if row.chosen]
    assert chosen
    assert all(row.status == "untimed" and "not here" in (row.reason or "") for row in chosen)
    np.testing.assert_allclose(engine(X), dt.compile(model, providers=["cpu"])(X), rtol=1e-4, atol=1e-4)
    assert driver.launched


@pytest.mark.timeout(300)
def test_a_plan_is_built_without_a_device(provider_without_device: Any, tmp_path: Path, capsys: Any) -> None:
    path, plan = tmp_path / "m.onnx", tmp_path / "m.plan"
    onnx.save(make_mlp("float16", rows=64, width=64, depth=1), path)
    arguments = [
        str(path),
        "-o",
        str(plan),
        "--providers",
        "cuda",
        "--provider-option",
        f"cuda.kernel_store={tmp_path}",
    ]
    assert main(["build", *arguments, "--quiet"])
    assert "--target" in capsys.readouterr().err
    assert main(["build", *arguments, "--target", "hopper", "--quiet"])
    assert "there is no such target" in capsys.readouterr().err
    assert not main(["build", *arguments, "--target", "sm_90", "--quiet"])
    assert b"sm_90" in plan.read_bytes()


def test_nothing_runs_on_a_target(provider_without_device: Any, tmp_path: Path) -> None:
    with pytest.raises(ProviderError, match="the target sm_90 is not here, so that nothing can run"):
        get_provider("cuda", {"target": "sm_90"}).create_stream()


def test_a_target_needs_a_provider_that_knows_it(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(make_mlp(rows=4, width=4), path)
    assert main(["build", str(path), "--providers", "cpu", "--target", "sm_90"]) == 1
    assert "no provider of this build is for devices that are not here" in capsys.readouterr().err


def test_what_is_covered_is_told_without_a_device(provider_without_device: Any, capsys: Any) -> None:
    assert not main(["parity", "cpu", "cuda", "--json"])
    assert '"Conv"' in capsys.readouterr().out


def test_an_untuned_plan_is_told_apart_and_tuned_when_it_first_meets_its_device(
    paper: Any, tmp_path: Path, capsys: Any
) -> None:
    """Built for the very device by its name, timed when asked there, and left alone afterwards."""
    path, plan, cache = (tmp_path / name for name in ("m.onnx", "m.plan", "timings"))
    onnx.save(make_mlp(rows=64, width=64, depth=1), path)
    _, driver = paper
    build = ["build", str(path), "-o", str(plan), "--providers", "cuda", "--timing-cache", str(cache)]
    fingerprint = get_provider("cuda").device.fingerprint
    store = get_default_options("cuda")
    assert not main([*build, "--target", fingerprint, "--quiet"])
    set_default_options("cuda", store)
    assert not driver.launched

    report = check_plan(plan)
    assert report.verdict == "usable"
    assert report.reasons == [
        "1 of 1 choices were not timed: it was built for a device that was not there; others may be faster"
    ]
    messages: list[str] = []
    with dt.load(str(plan), logger=_Messages(messages)) as engine:
        assert count_untimed(engine.manifest) == 1
    assert len(messages) == 1
    assert "--if-untuned" in messages[0]

    capsys.readouterr()
    assert not main([*build, "--if-untuned", "--quiet"])
    assert driver.launched
    assert check_plan(plan).verdict == "optimal"
    messages.clear()
    with dt.load(str(plan), logger=_Messages(messages)) as engine:
        (table,) = engine.manifest.tuning
        assert {row.status for row in table.candidates if row.chosen} == {"timed"}
    assert not messages

    before, written = len(driver.launched), plan.read_bytes()
    assert not main([*build, "--if-untuned"])
    assert "kept, tuned for this device" in capsys.readouterr().out
    assert (len(driver.launched), plan.read_bytes()) == (before, written)

    assert not main([*build, "--target", fingerprint, "--quiet"])  # where the plan is built, with the timings
    set_default_options("cuda", store)
    assert check_plan(plan).verdict == "optimal"
    assert len(driver.launched) == before


class _Messages(dt.ILogger):
    def __init__(self, kept: list[str]) -> None:
        super().__init__()
        self._kept = kept

    def log(self, severity: Any, msg: str) -> None:
        self._kept.append(msg)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "case",
    [case if case.name == "convolution" else pytest.param(case, marks=pytest.mark.slow) for case in MODELS],
    ids=lambda case: case.name,
)
def test_a_case_of_the_kit_compiles_with_sizes_that_vary(
    case: Case, provider_without_device: CudaFactory, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """An interpreter takes more than a compiler does."""
    onnx.save(case.make_model(), tmp_path / "m.onnx")
    options = ["--providers", "cuda", "--target", "sm_90", "-o", str(tmp_path / "m.plan")]
    assert not main(["build", str(tmp_path / "m.onnx"), *options])
    assert "compile" not in capfd.readouterr().err
