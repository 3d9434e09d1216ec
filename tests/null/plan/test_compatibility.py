"""Optimal, usable or rebuild: one test for each reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dovetail.errors import PlanError
from dovetail.plan.compatibility import check_plan
from dovetail.plan.manifest import FORMAT_VERSION, LibraryRecord, RefitRecord
from tests.support.handmade_plans import library_record, make_manifest, replace, write_handmade


def _device(**changes: Any) -> dict[str, Any]:
    return {"devices": [replace(make_manifest().devices[0], **changes)]}


def test_here_and_now_is_optimal(tmp_path: Path) -> None:
    report = check_plan(write_handmade(tmp_path / "a.plan"))
    assert report.verdict == "optimal"
    assert report.reasons[0].startswith("tuned for this device: cpu (")
    assert report.notes == ["needs the plugin 'Twice' version '1' in namespace 'acme'"]


def test_another_device_is_usable(tmp_path: Path) -> None:
    manifest = make_manifest(**_device(name="Other CPU", fingerprint="0" * 16))
    report = check_plan(write_handmade(tmp_path / "a.plan", manifest))
    assert report.verdict == "usable"
    assert "tuned on another device (Other CPU)" in report.reasons[0]


def test_another_version_of_the_provider_is_usable(tmp_path: Path) -> None:
    report = check_plan(write_handmade(tmp_path / "a.plan", make_manifest(**_device(version="0.0.1"))))
    assert report.verdict == "usable"
    assert "tuned with version 0.0.1 of provider 'cpu'" in report.reasons[0]


def test_another_major_version_of_the_provider_is_rebuild(tmp_path: Path) -> None:
    report = check_plan(write_handmade(tmp_path / "a.plan", make_manifest(**_device(version="77.0.0"))))
    assert report.verdict == "rebuild"
    assert report.reasons[0].endswith("another major version")


def test_a_provider_that_is_not_here_is_rebuild(tmp_path: Path) -> None:
    manifest = make_manifest()
    steps = [replace(step, provider="npu") for step in manifest.programs[0].steps]
    programs = [replace(manifest.programs[0], steps=steps)]
    report = check_plan(
        write_handmade(tmp_path / "a.plan", replace(manifest, programs=programs, **_device(provider="npu")))
    )
    assert report.verdict == "rebuild"
    assert "the plan needs the provider 'npu', which is not installed" in report.reasons[0]


def test_a_kernel_that_is_not_here_is_rebuild(tmp_path: Path) -> None:
    manifest = make_manifest()
    first = replace(manifest.programs[0].steps[0], op="Frobnicate")
    programs = [replace(manifest.programs[0], steps=[first, manifest.programs[0].steps[1]])]
    report = check_plan(write_handmade(tmp_path / "a.plan", replace(manifest, programs=programs)))
    assert report.verdict == "rebuild"
    assert report.reasons == ["provider 'cpu' has no kernel for ai.onnx::Frobnicate at opset 14"]


@pytest.mark.parametrize("version", [(FORMAT_VERSION[0], FORMAT_VERSION[1] + 1), (FORMAT_VERSION[0] + 1, 0)])
def test_a_newer_format_is_rebuild(tmp_path: Path, version: tuple[int, int]) -> None:
    report = check_plan(write_handmade(tmp_path / "a.plan", make_manifest(format_version=version)))
    assert report.verdict == "rebuild"
    assert "a format this version does not read" in report.reasons[0]


def test_damage_is_rebuild(tmp_path: Path) -> None:
    path = write_handmade(tmp_path / "a.plan")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert check_plan(path).reasons == ["the file is damaged: w"]
    path.write_bytes(data[:-1])
    report = check_plan(path)
    assert report.verdict == "rebuild"
    assert len(report.reasons) == 1


def test_what_is_no_plan_is_rebuild(tmp_path: Path) -> None:
    path = tmp_path / "a.plan"
    path.write_text("hello, I am a text file")
    assert check_plan(path).verdict == "rebuild"


def test_no_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="cannot be read"):
        check_plan(tmp_path / "none.plan")
    with pytest.raises(PlanError, match="not a regular file"):
        check_plan(tmp_path)


def test_what_loading_will_ask_for_is_noted(tmp_path: Path) -> None:
    weight = replace(make_manifest().blobs["w"], stripped=True, digest="")
    manifest = make_manifest(
        blobs={"w": weight, "library": library_record()},
        libraries=[LibraryRecord(name="mylib", blob="library")],
        refit=RefitRecord(weights={"w": "w"}),
    )
    report = check_plan(write_handmade(tmp_path / "a.plan", manifest))
    assert report.verdict == "optimal", report.reasons
    assert "carries the plugin library 'mylib', which is host code: loading it must be allowed" in report.notes
    assert "1 weight(s) are stripped: refit the engine before it runs" in report.notes
