"""Every V2 plugin file, migrated: the checker passes it, and it computes what it did."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dovetail as dt
from dovetail.plugin.check import check_path
from dovetail_tensorrt import v2
from dovetail_tensorrt.migrate.module import migrate_source
from tests.tensorrt.v2_files import (
    FILES,
    PluginFile,
    build_plan,
    import_file,
    importable_tensorrt,
    make_fields,
    run_plan,
)

FILE = pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)


def write_migrated(file: PluginFile, folder: Path) -> Path:
    path = folder / f"{file.name}_v3.py"
    path.write_text(migrate_source(file.path.read_text()).code)
    return path


@FILE
def test_the_outputs_are_equal(file: PluginFile, tmp_path: Path) -> None:
    old = getattr(import_file(file.path), file.creator)()
    new = getattr(import_file(write_migrated(file, tmp_path)), file.creator)()
    assert isinstance(new, dt.IPluginCreatorV3One)
    plugin = old.create_plugin("layer", make_fields(file.fields))
    before = build_plan(file, lambda network, inputs: network.add_plugin_v2(inputs, plugin))
    migrated = new.create_plugin("layer", make_fields(file.fields), dt.TensorRTPhase.BUILD)
    after = build_plan(file, lambda network, inputs: network.add_plugin_v3(inputs, [], migrated))
    for batch in (1, 2, 4):
        inputs = file.make_inputs(batch)
        was = run_plan(before, [v2.adapt_creator(old)], inputs)
        now = run_plan(after, [new], inputs)
        for got, expected, wanted in zip(now, was, file.expected(*inputs), strict=True):
            assert got.dtype == expected.dtype
            np.testing.assert_array_equal(got, expected)
            np.testing.assert_allclose(got, wanted, rtol=1e-6)


@pytest.mark.slow
@FILE
def test_the_checker_passes_the_result(file: PluginFile, tmp_path: Path) -> None:
    shapes = [",".join("x".join(map(str, (batch, *shape[1:]))) for shape in file.shapes) for batch in (2, 3)]
    with importable_tensorrt():
        report = check_path(
            str(write_migrated(file, tmp_path)),
            fields=file.fields,
            shapes=shapes,
            types=[dtype.name for dtype in file.types],
        )
    assert [f"{rule['id']} {rule['message']}" for rule in report.to_dict()["rules"] if rule["status"] == "failed"] == []
    assert report.to_dict()["counts"]["passed"] > 40


@FILE
def test_nothing_of_v2_is_left(file: PluginFile) -> None:
    code = migrate_source(file.path.read_text()).code
    names = ("IPluginV2DynamicExt", "IPluginV2Ext", "IPluginV2IOExt", "add_plugin_v2", "plugin_type", "IPluginCreator.")
    lines = code.splitlines()[1:]  # the docstring of the file names its interface
    assert [line for line in lines for name in names if name in line] == []


def test_the_scripts_around_a_plugin_work_on(tmp_path: Path) -> None:
    file = next(file for file in FILES if file.name == "scaled_add")
    module = import_file(write_migrated(file, tmp_path))
    with importable_tensorrt():
        plan = module.build((2, 5))
    x, y = file.make_inputs(2)
    np.testing.assert_allclose(run_plan(plan, [module.ScaledAddCreator()], [x, y])[0], x + y, rtol=1e-6)
