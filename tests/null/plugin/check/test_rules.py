"""Every rule catches its broken plugins and no others; correct plugins keep all rules; every rule has a page."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dovetail.plugin.arrays import as_array
from dovetail.plugin.check import Report, Rule, Status, check_creator, check_plugin, registered_rules
from tests.null.plugin.check import broken_build, broken_life, broken_run
from tests.null.plugin.check.faults import FAULTS, Fault
from tests.null.plugin.check.good import Centred, InPlace, Parts, PartsCreator, Positive, Scale, creator_of

RULES = registered_rules()
PAGES = Path(__file__).resolve().parents[4] / "docs/rules"
MODULES = (broken_build, broken_life, broken_run)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.rule_id}-{fault.name}")
def test_a_broken_plugin_is_caught_by_its_rule_alone(fault: Fault) -> None:
    report = fault.check()
    assert report.failed_ids == {fault.rule_id}, report.render()
    outcome = report.outcome(fault.rule_id)
    assert fault.says in outcome.message
    assert outcome.fix
    assert not report.ok


def test_every_rule_has_a_broken_plugin() -> None:
    assert {fault.rule_id for fault in FAULTS} == {rule.id for rule in RULES}
    assert all(any(hasattr(module, fault.name) for module in MODULES) for fault in FAULTS)


@pytest.mark.parametrize("plugin", [Scale, Positive, Centred, InPlace])
def test_a_correct_plugin_keeps_every_rule(plugin: type[Any]) -> None:
    report = check_creator(creator_of(plugin), fields={"alpha": 0.5})
    assert report.ok, report.render()
    _require_complete(report)


def test_a_correct_plugin_in_half_precision() -> None:
    report = check_creator(creator_of(Scale), fields={"alpha": 0.5}, shapes=["2x3x4x4", "3x3x4x4"], types=["HALF"])
    assert report.ok, report.render()
    assert report.outcome("R40").message.startswith("28 combinations")


COMPARING = {"R38", "R45", "R46", "R47", "R48", "R50", "R51", "R54", "R55", "R63", "R64", "R65", "R66"}
"""The rules that hold results against each other and nothing else."""


class NoNumbers(Scale):
    """Gives NaN whatever it is given, so that no two results of it ever differ."""

    def enqueue(self, *args: Any) -> None:
        super().enqueue(*args)
        as_array(args[3][0], args[1][0])[...] = np.nan


class SomeNumbers(Scale):
    """Gives infinity for what is above 0."""

    def enqueue(self, *args: Any) -> None:
        super().enqueue(*args)
        as_array(args[3][0], args[1][0])[as_array(args[2][0], args[0][0]) > 0] = np.inf


def test_results_without_a_number_keep_no_rule_that_compares_them() -> None:
    report = check_creator(creator_of(NoNumbers), fields={"alpha": 0.5})
    assert report.failed_ids == set()
    for rule_id in COMPARING:
        outcome = report.outcome(rule_id)
        assert outcome.status is Status.NOT_APPLICABLE, rule_id
        assert "output 0" in outcome.message, rule_id
        assert "nothing was compared" in outcome.message, rule_id
    assert any("NaN" in note for note in report.notes)
    numbers = check_creator(creator_of(Scale), fields={"alpha": 0.5})
    assert all(numbers.outcome(rule_id).status is Status.PASSED for rule_id in COMPARING)
    assert not any("compared" in note for note in numbers.notes)


def test_results_that_are_infinite_in_part_are_noted() -> None:
    report = check_creator(creator_of(SomeNumbers), fields={"alpha": 0.5})
    assert report.ok, report.render()
    assert report.outcome("R50").status is Status.PASSED
    assert any("output 0" in note and " infinite of " in note for note in report.notes)


def test_capabilities_in_separate_objects() -> None:
    report = check_creator(PartsCreator(), fields={"alpha": 0.5}, strict=True)
    assert report.ok, report.render()
    assert report.outcome("R27").message == "self.parts[<PluginCapabilityType.RUNTIME: 2>].tactic kept"


def test_a_plugin_without_a_creator() -> None:
    report = check_plugin(Parts)
    assert report.ok, report.render()
    absent = {o.rule.id for o in report.outcomes if o.message == "there is no creator"}
    assert absent == {"R04", "R05", "R36", "R37", "R38", "R39", "R67"}


def test_the_strict_set_applies_only_when_asked_for() -> None:
    strict = {rule.id for rule in RULES if rule.strict}
    assert strict == {"R57", "R59", "R60"}
    relaxed = check_creator(creator_of(Scale))
    assert {o.rule.id for o in relaxed.outcomes if o.message == "only in the strict set"} == strict
    judged = check_creator(creator_of(Scale), strict=True)
    assert {o.status for o in judged.outcomes if o.rule.id in strict} == {Status.PASSED}


def test_two_checks_of_the_same_plugin_say_the_same() -> None:
    first, second = (check_creator(creator_of(Centred), fields={"alpha": 0.5}, seed=3).to_dict() for _ in range(2))
    for report in (first, second):
        for item in report["rules"]:
            item["message"] = re.sub(r"\d+ bytes", "N bytes", item["message"])  # what an interpreter allocates varies
    assert first == second


def _require_complete(report: Report) -> None:
    """Every rule is there once, and one that does not apply says why."""
    assert [outcome.rule for outcome in report.outcomes] == list(RULES)
    assert all(outcome.message for outcome in report.outcomes if outcome.status is Status.NOT_APPLICABLE)


def test_ids_and_slugs_are_unique_and_in_order() -> None:
    assert [rule.id for rule in RULES] == [f"R{number:02d}" for number in range(1, len(RULES) + 1)]
    assert len({rule.slug for rule in RULES}) == len(RULES) >= 25
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", rule.slug) for rule in RULES)


def test_every_rule_has_a_page_and_every_page_a_rule() -> None:
    pages = {f"docs/rules/{path.name}" for path in PAGES.glob("*.md")} - {"docs/rules/README.md"}
    assert pages == {rule.page for rule in RULES}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_page_explains_its_rule(rule: Rule) -> None:
    text = (PAGES.parents[1] / rule.page).read_text(encoding="utf-8")
    assert text.startswith(f"# {rule.id} {rule.title}\n")
    assert re.findall(r"^## (.+)$", text, flags=re.MULTILINE) == ["Why", "Breaks it", "Keeps it"]
    flat = " ".join(text.split())
    assert rule.why in flat
    assert rule.fix in flat
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        ast.parse(block)


def test_the_index_lists_every_rule_with_its_title() -> None:
    index = (PAGES / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^- \[(R\d\d)\]\((\S+)\) (.+)$", index, flags=re.MULTILINE)
    assert listed == [(rule.id, Path(rule.page).name, rule.title) for rule in RULES]


class CountsForAll(Scale):
    """Adds how many runs there were in the process."""

    runs = 0

    def enqueue(self, *args: Any) -> None:
        super().enqueue(*args)
        CountsForAll.runs += 1
        as_array(args[3][0], args[1][0])[...] += CountsForAll.runs


class DrawsForItself(Scale):
    """Adds noise whose seed nobody gave."""

    def enqueue(self, *args: Any) -> None:
        super().enqueue(*args)
        as_array(args[3][0], args[1][0])[...] += np.random.default_rng().integers(1, 1000)


def test_what_outlives_the_object_is_told_apart_from_chance() -> None:
    given: dict[str, Any] = {"fields": {"alpha": 0.5}, "shapes": ["2x4", "1x4"], "types": ["FLOAT"]}
    shared = check_creator(creator_of(CountsForAll), **given).outcome("R46")
    assert "something outlives the object" in shared.message
    assert "never in the class" in shared.fix
    chance = check_creator(creator_of(DrawsForItself), **given).outcome("R46")
    assert "seed random numbers" in chance.fix
