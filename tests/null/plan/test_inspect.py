"""The engine inspector and the reader of whole plan files."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import dovetail
from dovetail.errors import PlanCorruptError, PlanError, UsageError
from dovetail.plan.inspect import EngineInspector, LayerInformationFormat, inspect_plan
from dovetail.plan.manifest import DeviceRecord, ProgramRecord
from tests.support.dims import read_dims
from tests.support.handmade_plans import make_manifest, replace, write_handmade

ONELINE, JSON = LayerInformationFormat.ONELINE, LayerInformationFormat.JSON


def _information(inspector: EngineInspector) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(inspector.get_engine_information(JSON))
    return document


def test_enum_has_the_numbers_of_the_contract() -> None:
    assert [(f.name, int(f)) for f in LayerInformationFormat] == [("ONELINE", 0), ("JSON", 1)]
    assert dovetail.EngineInspector is EngineInspector
    assert dovetail.LayerInformationFormat is LayerInformationFormat


def test_detailed_json_has_everything() -> None:
    layers = _information(EngineInspector(make_manifest()))["Layers"]
    assert [layer["Name"] for layer in layers] == ["add", "twice"]
    add, twice = layers
    assert add["LayerType"] == "Add"
    described = {"Name": "x", "Dimensions": [-1, 3], "Format/Datatype": "LINEAR FP32", "Shape": ["n", 3]}
    assert add["Inputs"][0] == described
    assert twice["LayerType"] == "PluginV3"
    assert int(twice["TacticValue"], 16) == 2
    assert twice["Metadata"] == "made by hand"
    assert [(c["tactic"], c["status"], c["chosen"]) for c in twice["Tuning"]] == [
        (1, "timed", False),
        (2, "timed", True),
        (3, "failed", False),
    ]
    assert twice["Tuning"][2]["reason"] == "ValueError: no"
    assert add["Tuning"] == []


def test_bindings_are_inputs_then_outputs() -> None:
    assert _information(EngineInspector(make_manifest()))["Bindings"] == ["x", "y"]


def test_one_line_a_layer() -> None:
    text = EngineInspector(make_manifest()).get_layer_information(1, ONELINE)
    assert text == (
        "Layer(PluginV3): twice, Tactic: 0x0000000000000002, t (LINEAR FP32[-1,3]) -> y (LINEAR FP32[-1,3]), "
        "Metadata: made by hand"
    )
    lines = EngineInspector(make_manifest()).get_engine_information(ONELINE).splitlines()
    assert lines[0] == "Layers:"
    assert lines[2] == text
    assert lines[-3:] == ["Bindings:", "x", "y"]


@pytest.mark.parametrize("build", [{"profiling_verbosity": "LAYER_NAMES_ONLY"}, {}])
def test_names_only(build: dict[str, str]) -> None:
    inspector = EngineInspector(make_manifest(build=build))
    assert _information(inspector)["Layers"] == ["add", "twice"]
    assert inspector.get_layer_information(0, JSON) == '"add"'
    assert inspector.get_layer_information(0, ONELINE) == "add"


def test_none_shows_nothing() -> None:
    inspector = EngineInspector(make_manifest(build={"profiling_verbosity": "NONE"}))
    assert _information(inspector) == {"Layers": [], "Bindings": []}
    assert inspector.get_engine_information(ONELINE) == ""
    assert inspector.get_layer_information(0, ONELINE) == ""
    assert inspector.get_layer_information(0, JSON) == "{}"


@pytest.mark.parametrize("index", [-1, 2, 99])
def test_layer_that_does_not_exist(index: int) -> None:
    with pytest.raises(UsageError, match="no such layer; expected 0 to 1"):
        EngineInspector(make_manifest()).get_layer_information(index, ONELINE)


def test_a_context_gives_shapes_and_profile() -> None:
    manifest = make_manifest()
    second = ProgramRecord(inputs=[0], outputs=[0], values=manifest.programs[0].values[:1], steps=[])
    inspector = EngineInspector(replace(manifest, programs=[*manifest.programs, second]))
    inspector.execution_context = SimpleNamespace(active_optimization_profile=0, get_tensor_shape=lambda name: (5, 3))
    layers = _information(inspector)["Layers"]
    assert layers[0]["Inputs"][0]["Dimensions"] == [5, 3]
    assert layers[1]["Outputs"][0]["Dimensions"] == [10, 3]
    inspector.execution_context.active_optimization_profile = 1
    assert _information(inspector)["Layers"] == []


def test_a_shape_that_divides_by_zero_is_unknown() -> None:
    manifest = make_manifest()
    program = manifest.programs[0]
    values = [replace(program.values[0], dims=read_dims([["floor_div", 4, 0], 3])), *program.values[1:]]
    broken = replace(manifest, programs=[replace(program, values=values)])
    assert _information(EngineInspector(broken))["Layers"][0]["Inputs"][0]["Dimensions"] == [-1, 3]


# files


def test_a_file_is_shown_whole(tmp_path: Path) -> None:
    shown = inspect_plan(write_handmade(tmp_path / "a.plan", make_manifest(build={"profiling_verbosity": "NONE"})))
    assert shown["size_bytes"] == (tmp_path / "a.plan").stat().st_size
    assert shown["digests"] == {"ok": True, "checked": 1, "wrong": []}
    assert shown["plugins"] == [{"name": "Twice", "version": "1", "namespace": "acme"}]
    assert shown["inputs"][0]["dims"] == ["n", 3]
    assert shown["outputs"][0]["dims"] == ["prod(n, 2)", 3]
    assert shown["profiles"] == [{"shapes": {"x": {"min": [1, 3], "opt": [4, 3], "max": [8, 3]}}, "values": {}}]
    assert [layer["Name"] for layer in shown["programs"][0]["layers"]] == ["add", "twice"]
    assert [c["chosen"] for c in shown["tuning"][0]["candidates"]] == [False, True, False]
    assert shown["blobs"][0]["size_bytes"] == 12
    json.dumps(shown)  # plain data


def test_a_damaged_blob_is_listed(tmp_path: Path) -> None:
    path = write_handmade(tmp_path / "a.plan")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert inspect_plan(path)["digests"] == {"ok": False, "checked": 1, "wrong": ["w"]}


def test_a_provider_that_is_not_here_does_not_hide_the_plan(tmp_path: Path) -> None:
    manifest = make_manifest()
    steps = [replace(step, provider="npu") for step in manifest.programs[0].steps]
    programs = [replace(manifest.programs[0], steps=steps)]
    device = DeviceRecord(provider="npu", name="N1", fingerprint="f", version="1.0")
    shown = inspect_plan(write_handmade(tmp_path / "a.plan", replace(manifest, programs=programs, devices=[device])))
    assert "the provider 'npu', which is not installed" in shown["problems"][0]
    assert len(shown["programs"][0]["layers"]) == 2


def test_a_manifest_with_wild_numbers_is_refused(tmp_path: Path) -> None:
    program = replace(make_manifest().programs[0], outputs=[77])
    path = write_handmade(tmp_path / "a.plan", make_manifest(programs=[program]))
    with pytest.raises(PlanCorruptError, match="does not exist"):
        inspect_plan(path)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="plan cannot be read"):
        inspect_plan(tmp_path / "none.plan")
