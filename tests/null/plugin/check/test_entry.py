"""Checking by path, reading shapes and types, and what a report looks like."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dovetail.cli import main
from dovetail.errors import PluginError, UsageError
from dovetail.plugin.check import (
    Report,
    Status,
    check_creator,
    check_path,
    check_plugin,
    explain_rule,
    parse_case,
    registered_rules,
)
from dovetail.plugin.registry import get_plugin_registry
from tests.null.plugin.check.broken_run import RaisesInEnqueue
from tests.null.plugin.check.good import Scale, creator_of

GOOD = Path(__file__).with_name("good.py")
QUICK = """
import numpy as np
from dovetail.plugin.quick import layer

@layer("double_it")
def double_it(x):
    return x + x
"""


def test_a_creator_in_a_file() -> None:
    report = check_path(f"{GOOD}:ScaleCreator", fields={"alpha": "0.5"}, shapes=["2x4"])
    assert report.ok, report.render()
    assert report.subject == "ScaleCreator ('Scale')"


def test_a_creator_by_the_name_of_its_plugin_in_a_module() -> None:
    assert check_path("tests.null.plugin.check.good:Parts", shapes=["2x4"]).subject == "PartsCreator ('Parts')"


def test_a_plugin_class_in_a_module() -> None:
    report = check_path("tests.null.plugin.check.good:Centred", shapes=["2x4"])
    assert report.ok, report.render()
    assert report.subject == "Centred"
    with pytest.raises(UsageError, match="fields go to a creator"):
        check_path("tests.null.plugin.check.good:Centred", fields={"alpha": 1})


def test_the_only_creator_needs_no_name(tmp_path: Path) -> None:
    before = get_plugin_registry().all_creators
    (tmp_path / "quick.py").write_text(QUICK)
    report = check_path(str(tmp_path / "quick.py"))
    assert report.ok, report.render()
    assert report.subject == "LayerCreator ('double_it')"
    assert get_plugin_registry().all_creators == before


def test_a_package_folder(tmp_path: Path) -> None:
    folder = tmp_path / "package"
    folder.mkdir()
    (folder / "__init__.py").write_text("from .part import double_it\ndef get_creators(): return [double_it.creator]\n")
    (folder / "part.py").write_text(QUICK)
    assert check_path(f"{folder}:double_it", shapes=["2x4"]).ok


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("missing.py", "there is no such file"),
        ("no_such_module", "there is no such file or module"),
        (f"{GOOD}:Scales", "did you mean 'Scale'"),
        (str(GOOD), "there are several creators"),
        ("json", "there is no creator"),
        (str(GOOD.with_name("absent.txt")), "there is no such file"),
    ],
)
def test_a_target_that_cannot_be_found(target: str, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        check_path(target)


def test_a_file_that_cannot_be_imported(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("x = 1\nraise ValueError('no')\n")
    with pytest.raises(PluginError, match=r"bad\.py:2: importing .* raised ValueError: no"):
        check_path(str(tmp_path / "bad.py"))
    (tmp_path / "worse.py").write_text("x = 1\nx = = 2\n")
    with pytest.raises(PluginError, match=r"worse\.py:2: importing .* raised SyntaxError"):
        check_path(str(tmp_path / "worse.py"))


def test_shapes_in_all_forms() -> None:
    assert parse_case("2x3x8x8,()") == ((2, 3, 8, 8), ())
    forms: list[Any] = [["2x4"], [(2, 4)], [[(2, 4)]]]
    texts = [check_creator(creator_of(Scale), shapes=shapes).outcome("R08").message for shapes in forms]
    assert texts == ["[in0.0, in0.1]"] * 3


def test_dimensions_that_differ_between_cases_are_dynamic() -> None:
    report = check_creator(creator_of(Scale), fields={"alpha": 0.5}, shapes=["2x4x6", "2x5x6"], types=["FLOAT"])
    assert report.ok
    assert report.outcome("R08").message == "[in0.0, in0.1, 6]"
    assert report.notes == ()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"shapes": ["2xx3"]}, "shapes cannot be read"),
        ({"shapes": []}, "shapes are empty"),
        ({"shapes": ["2x3", "2x3x4"]}, "the cases differ"),
        ({"shapes": ["2x3", "2x3,2x3"]}, "the cases differ"),
        ({"shapes": ["-1x3"]}, "concrete sizes"),
        ({"shapes": ["0x3"]}, "every case has an input without elements"),
        ({"shapes": ["2x3"], "types": ["FLOAT", "HALF"]}, "types and shapes do not fit"),
        ({"types": ["FLOAT128"]}, "unknown type"),
    ],
)
def test_arguments_that_make_no_sense(options: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        check_creator(creator_of(Scale), **options)


def test_check_plugin_takes_a_function() -> None:
    plugin: Any = Scale()
    with pytest.raises(UsageError, match="takes a function"):
        check_plugin(plugin)


@pytest.fixture(scope="module")
def failing() -> Report:
    return check_creator(creator_of(RaisesInEnqueue), shapes=["2x4"], types=["FLOAT"])


def test_a_report_as_data(failing: Report) -> None:
    data = json.loads(json.dumps(failing.to_dict()))
    assert data["ok"] is False
    assert data["subject"] == "ScaleCreator ('Scale')"
    assert sum(data["counts"].values()) == len(data["rules"])
    assert data["counts"]["failed"] == 1
    (failed,) = [item for item in data["rules"] if item["status"] == "failed"]
    assert failed["id"] == "R40"
    assert failed["page"] == "docs/rules/R40-run-raises.md"
    assert failed["fix"]


def test_a_report_as_lines(failing: Report) -> None:
    lines = failing.render().splitlines()
    assert lines[0] == "checking ScaleCreator ('Scale')"
    rules = [line for line in lines if line[5:8].startswith("R") and line[:4] in ("PASS", "FAIL", "N-A ")]
    assert len(rules) == len(failing.outcomes)
    (failure,) = [line for line in rules if line.startswith("FAIL")]
    assert failure.startswith("FAIL R40 set_tactic, on_shape_change and enqueue do not raise: enqueue raised Runtime")
    assert "| fix: mend the callback" in failure
    assert failure.endswith("| docs/rules/R40-run-raises.md")
    assert lines[-1].endswith("not applicable")


def test_what_depends_on_a_failed_callback_points_to_its_rule(failing: Report) -> None:
    outcome = failing.outcome("R45")
    assert outcome.status is Status.NOT_APPLICABLE
    assert outcome.message == "no run succeeded, see R18 and R40"
    assert failing.failures == (failing.outcome("R40"),)


def test_a_page_can_be_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert explain_rule("r39").startswith("# R39 create_plugin keeps nothing of the memory of the fields\n")
    with pytest.raises(UsageError, match="there is no rule 'R99'"):
        explain_rule("R99")
    assert main(["check", "--explain", "R39"]) == 0
    assert capsys.readouterr().out.startswith("# R39 create_plugin keeps nothing")
    assert main(["check"]) == 1
    assert "there is nothing to check" in capsys.readouterr().err


def test_every_page_comes_with_the_package() -> None:
    for rule in registered_rules():
        assert explain_rule(rule.id).startswith(f"# {rule.id} {rule.title}\n")
