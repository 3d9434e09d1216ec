"""C++ plugins with CUDA code: built for a device that is not here, refused on the host."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

import dovetail as dt
from dovetail.cli import main
from dovetail.errors import DovetailError
from dovetail.plan.container import PlanFile
from dovetail.plan.manifest import decode_manifest
from tests.support.native_libraries import compile_library

pytestmark = pytest.mark.usefixtures("provider_without_device")

MODEL = """<ir_version: 10, opset_import: ["" : 21, "own" : 1]>
    g (float[2,3] x) => (float[2,3] y, float[2,3] z) { a = Relu(x) y, z = own.WritesAll(a) }"""


def build(folder: Path, *options: str) -> int:
    """Build a model with a plugin of a library that has CUDA code."""
    onnx.save(onnx.parser.parse_model(MODEL), folder / "m.onnx")
    library = str(compile_library("device", "-DMARKED"))
    command = ["build", str(folder / "m.onnx"), "-o", str(folder / "m.plan"), "--plugins", library, "--quiet", *options]
    return main(command)


def test_a_cross_build_places_the_plugin_on_the_device(tmp_path: Path) -> None:
    assert build(tmp_path, "--providers", "cuda", "--target", "sm_90") == 0
    with PlanFile.open(tmp_path / "m.plan") as file:
        manifest = decode_manifest(file.manifest)
    assert [step.provider for step in manifest.programs[0].steps if step.kind == "plugin"] == ["cuda"]
    with pytest.raises(DovetailError):
        dt.load(tmp_path / "m.plan")


def test_a_build_for_the_host_is_refused_with_the_fix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert build(tmp_path, "--providers", "cpu") != 0
    written = capsys.readouterr().err
    assert "contains CUDA code" in written
    assert "--target" in written
