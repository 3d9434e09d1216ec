"""Built-in plugins keep the plugin contract: every rule of the checker, and the names that models use."""

from __future__ import annotations

import subprocess
import sys

import pytest

import dovetail as dt
from dovetail.errors import PluginError
from dovetail.plugin.check import check_creator
from dovetail_tensorrt.builtin import PLUGINS, get_creators, register_all
from tests.tensorrt.builtin.cases import CASES, mark_slow
from tests.tensorrt.builtin.running import make_registry

VERSIONS = {
    "EfficientNMS_TRT": "1",
    "ROIAlign_TRT": "12",
    "MultiscaleDeformableAttnPlugin_TRT": "12",
    "ModulatedDeformConv2d": "12",
    "ScatterElements": "12",
    "TopkLastDim": "1",
    "InstanceNormalization_TRT": "123",
    "GroupNormalizationPlugin": "1",
    "PillarScatterPlugin": "1",
    "CropAndResizeDynamic": "12",
    "PyramidROIAlign_TRT": "1",
    "DisentangledAttention_TRT": "12",
}
FIELDS = {
    "EfficientNMS_TRT": "score_threshold iou_threshold max_output_boxes background_class score_activation "
    "class_agnostic box_coding",
    "ROIAlign_TRT": "coordinate_transformation_mode mode output_height output_width sampling_ratio spatial_scale",
    "MultiscaleDeformableAttnPlugin_TRT": "",
    "ModulatedDeformConv2d": "stride padding dilation group deformable_group",
    "ScatterElements": "axis reduction",
    "TopkLastDim": "type_id k is_largest axis",
    "InstanceNormalization_TRT": "epsilon scales bias relu alpha",
    "GroupNormalizationPlugin": "eps num_groups",
    "PillarScatterPlugin": "dense_shape",
    "CropAndResizeDynamic": "crop_width crop_height",
    "PyramidROIAlign_TRT": "fpn_scale pooled_size image_size roi_coords_absolute roi_coords_swap roi_coords_plusone "
    "roi_coords_transform sampling_ratio legacy",
    "DisentangledAttention_TRT": "span factor",
}


def test_names_versions_and_fields_are_those_that_models_use() -> None:
    found = {(creator.name, creator.plugin_version) for creator in get_creators()}
    assert found == {(name, version) for name, versions in VERSIONS.items() for version in versions}
    for creator in get_creators():
        assert [field.name for field in creator.field_names] == FIELDS[creator.name].split()
    assert {plugin.name for plugin in PLUGINS} == {case.name for case in CASES.values()}


@pytest.mark.parametrize("namespace", ["", "org"])
def test_registering_again_changes_nothing(namespace: str) -> None:
    registry = dt.PluginRegistry()
    assert register_all(registry, namespace)
    before = list(registry.all_creators)
    assert register_all(registry, namespace)
    assert registry.all_creators == before
    assert registry.get_creator("ROIAlign_TRT", "2", namespace).plugin_namespace == namespace


def test_a_plugin_of_the_same_name_stays() -> None:
    registry, own = dt.PluginRegistry(), get_creators()[0]
    registry.register_creator(own, "")
    assert register_all(registry, "")
    assert registry.get_creator(own.name, own.plugin_version, "") is own


@pytest.mark.parametrize("name", mark_slow(CASES))
def test_every_rule_of_the_checker_holds(name: str) -> None:
    case = CASES[name]
    creator = make_registry().get_creator(case.name, case.version, "")
    shapes = [list(shapes) for shapes in case.shapes]
    report = check_creator(creator, fields=case.fields, shapes=shapes, types=case.types).to_dict()
    assert [rule for rule in report["rules"] if rule["status"] == "failed"] == []
    assert report["counts"]["passed"] > 50


def test_the_command_line_checks_a_built_in_plugin() -> None:
    command = [sys.executable, "-m", "dovetail", "check", "dovetail_tensorrt.builtin:GroupNormalizationPlugin"]
    command += ["--fields", "num_groups=2", "--shapes", "2x6x4x4,6,6", "--types", "FLOAT"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 failed" in done.stdout


def test_importing_them_needs_no_library_of_a_device() -> None:
    code = (
        "import sys, dovetail_tensorrt.builtin as builtin; builtin.get_creators();"
        "sys.exit(bool({'triton', 'cuda', 'dovetail_cuda', 'torch'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("TopkLastDim", {"type_id": 0, "is_largest": 1}, r"TopkLastDim: field 'k' is missing; expected 1 or more"),
        ("TopkLastDim", {"type_id": 0, "k": 0, "is_largest": 1}, r"field 'k' has a value that is not allowed; .*got 0"),
        ("TopkLastDim", {"type_id": 2, "k": 1, "is_largest": 1}, r"field 'type_id' .*expected 0 \(FLOAT\), 1 \(HALF\)"),
        ("TopkLastDim", {"type_id": 0, "k": 1.5, "is_largest": 1}, r"field 'k' is of another type; expected INT32"),
        ("ModulatedDeformConv2d", {"stride": (1, 1, 1)}, r"field 'stride' has another length; expected 2, got 3"),
        ("ScatterElements", {"axis": 0, "reduction": "none"}, r"field 'reduction' .*expected add, mul, max, min"),
        ("ScatterElements", {"axis": 0, "reduction": 1}, r"field 'reduction' is no text"),
        (
            "InstanceNormalization_TRT",
            {"scales": (1.0, 2.0), "bias": (1.0,)},
            r"'bias' has another length than 'scales'",
        ),
        ("DisentangledAttention_TRT", {"span": 1, "factor": 0.5}, r"field 'span' .*expected 2 or more, got 1"),
        ("PyramidROIAlign_TRT", {"roi_coords_transform": 3}, r"'roi_coords_transform' .*expected -1, 0, 1 or 2, got 3"),
    ],
)
def test_wrong_fields_are_told(name: str, fields: dict[str, object], message: str) -> None:
    from tests.tensorrt.builtin.running import make_fields

    creator = make_registry().get_creator(name, "1", "")
    with pytest.raises(PluginError, match=message):
        creator.create_plugin("layer", make_fields(fields), dt.TensorRTPhase.BUILD)
