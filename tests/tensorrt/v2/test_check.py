"""The checker takes V2 plugin files: it finds their creators and judges them through the adapter."""

from __future__ import annotations

import pytest

from dovetail.plugin.check import check_path
from tests.tensorrt.v2_files import FILES, PluginFile, importable_tensorrt


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_the_checker_passes_v2_files(file: PluginFile) -> None:
    shapes = [",".join("x".join(map(str, (batch, *shape[1:]))) for shape in file.shapes) for batch in (2, 3)]
    with importable_tensorrt():
        report = check_path(
            str(file.path), fields=file.fields, shapes=shapes, types=[dtype.name for dtype in file.types]
        )
    assert [f"{rule['id']} {rule['message']}" for rule in report.to_dict()["rules"] if rule["status"] == "failed"] == []
    assert report.to_dict()["counts"]["passed"] > 40
    assert report.subject.startswith(f"{file.creator} (")


def test_a_plugin_class_can_be_named() -> None:
    path = next(file.path for file in FILES if file.name == "gate_context")
    with importable_tensorrt():
        report = check_path(f"{path}:Gate", shapes=["2x5"], types=["FLOAT"])
    assert report.ok, report.to_dict()
