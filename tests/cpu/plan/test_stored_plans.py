"""Plans that earlier versions wrote load, verify and compute what they did then (docs/plan-versions.md)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dovetail
from dovetail.plan.compatibility import check_plan
from dovetail.plan.inspect import inspect_plan

FOLDER = Path(__file__).resolve().parents[2] / "data" / "plans"
PLANS = sorted(FOLDER.glob("*/*.plan"))
MAX_BYTES = 100_000


def _name(path: Path) -> str:
    return path.relative_to(FOLDER).as_posix()


def test_this_version_has_stored_plans() -> None:
    found = {path.parent.name for path in PLANS}
    assert dovetail.__version__ in found, "run tests/data/plans/make_plans.py and add the folder it makes"


@pytest.mark.parametrize("path", PLANS, ids=_name)
def test_a_stored_plan_computes_what_it_did(path: Path) -> None:
    with np.load(path.with_suffix(".npz"), allow_pickle=False) as arrays:
        inputs = {key.removeprefix("in:"): arrays[key] for key in arrays.files if key.startswith("in:")}
        expected = {key.removeprefix("out:"): arrays[key] for key in arrays.files if key.startswith("out:")}
    with dovetail.load(path, host_code=True) as engine:
        result = engine(**inputs)
    results = result if isinstance(result, dict) else {next(iter(expected)): result}
    assert results.keys() == expected.keys()
    for name, array in expected.items():
        assert results[name].dtype == array.dtype
        np.testing.assert_allclose(results[name], array, rtol=2e-2 if array.dtype == np.float16 else 1e-5, atol=1e-3)


@pytest.mark.parametrize("path", PLANS, ids=_name)
def test_a_stored_plan_is_usable_and_can_be_inspected(path: Path) -> None:
    report = check_plan(path)
    assert report.verdict == "usable", report.reasons
    shown = inspect_plan(path)
    assert shown["producer"] == f"dovetail {path.parent.name}"
    assert shown["digests"]["ok"]


def test_host_code_is_asked_for() -> None:
    with pytest.raises(dovetail.PlanTrustError, match="carries the plugin library 'stored_layers'"):
        dovetail.load(FOLDER / "0.1.0" / "carried.plan")


@pytest.mark.parametrize("path", PLANS, ids=_name)
def test_stored_plans_are_small_and_name_no_place(path: Path) -> None:
    data = path.read_bytes()
    assert len(data) < MAX_BYTES
    for place in (b"/home/", b"/tmp/", b"/root/", b"C:\\\\"):
        assert place not in data
