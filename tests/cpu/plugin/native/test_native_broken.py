"""Broken C++ plugins: each is told by the rule that it breaks, and none takes this process along."""

from __future__ import annotations

import pytest

from dovetail.plugin.check import check_path
from tests.support.native_libraries import Compile

QUICK = {
    "NoBuildCapability": "R02",
    "NoOutputs": "R06",
    "TypesChange": "R07",
    "NegativeSize": "R08",
    "ShapesStatus": "R18",
    "FormatsNone": "R14",
    "DeclaresOtherType": "R15",
    "ConfigureThrows": "R18",
    "EnqueueThrows": "R40",
    "WritesLater": "R62",
    "ReadsNull": "R61",
    "Aborts": "R61",
    "Exits": "R61",
    "ThrowsPastNoexcept": "R61",
    "Hangs": "R61",
    "CreateThrows": "R01",
    "ManyOutputs": "R06",
    "TypesPastEnd": "R18",
    "ShapesPastEnd": "R18",
}
"""Told early: the rest of the life is not looked at."""
WHOLE = {
    "OtherName": "R04",
    "FieldTwice": "R05",
    "ShapesChange": "R09",
    "FormatsChange": "R11",
    "AliasOutOfRange": "R17",
    "ConfigureStatus": "R19",
    "TacticsTwice": "R20",
    "WorkspaceChanges": "R21",
    "CacheIdChanges": "R22",
    "CloneForgetsFields": "R25",
    "AttachReturnsItself": "R29",
    "AttachForgetsFields": "R30",
    "FieldsBroken": "R34",
    "FieldsChange": "R35",
    "RuntimeRefuses": "R36",
    "RuntimeForgets": "R37",
    "EnqueueStatus": "R19",
    "WritesInput": "R41",
    "WritesPastOutput": "R42",
    "WorkspaceOverrun": "R43",
    "AddsToOutput": "R45",
    "CountsRuns": "R47",
    "KeepsFirstShape": "R48",
    "TacticsDiffer": "R50",
    "Leaks": "R58",
    "SharesGain": "R69",
    "HugeWorkspace": "R21",
    "OneObject": "R01",
    "UsesFreed": "R65",
    "ReadsUnset": "R65",
}
"""Told after a whole life, which takes seconds."""


def find_failures(compile_library: Compile, fault: str) -> dict[str, str]:
    report = check_path(f"{compile_library('broken')}:{fault}", shapes=["2x3"], timeout_s=2)
    return {failure.rule.id: failure.message for failure in report.failures}


@pytest.mark.parametrize(("fault", "rule"), QUICK.items(), ids=QUICK)
def test_a_broken_plugin_is_told_by_its_rule(compile_library: Compile, fault: str, rule: str) -> None:
    found = find_failures(compile_library, fault)
    assert rule in found, found
    if rule == "R61":
        assert found[rule].startswith("enqueue "), "the callback is named"


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "rule"), WHOLE.items(), ids=WHOLE)
def test_a_plugin_broken_in_its_life_is_told_by_its_rule(compile_library: Compile, fault: str, rule: str) -> None:
    found = find_failures(compile_library, fault)
    assert rule in found, found


@pytest.mark.slow
def test_a_plugin_that_keeps_the_memory_of_its_fields_is_told(compile_library: Compile) -> None:
    """It reads what lies in freed memory: R39 tells when that stays the same, else whichever compares first."""
    assert find_failures(compile_library, "KeepsFieldMemory")


@pytest.mark.slow
def test_the_plugin_that_breaks_nothing_passes(compile_library: Compile) -> None:
    assert find_failures(compile_library, "None") == {}


def test_a_crash_while_inputs_are_looked_for_says_how_to_name_them(compile_library: Compile) -> None:
    report = check_path(f"{compile_library('broken')}:ReadsNull")
    (failure,) = report.failures
    assert "inputs were being looked for" in failure.message
    assert failure.fix is not None
    assert "--shapes and --types" in failure.fix
