"""The checker's score on plugins that it was not made for: what it catches by default, and where it cries wolf.

Each file of ``corpus/broken`` is one subtly broken plugin whose first line names the rules that should catch it; each
of ``corpus/correct`` is one that is unusual and right. The score is by default options, as an author meets the checker.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dovetail.plugin.check import Report, check_path

CORPUS = Path(__file__).with_name("corpus")
BROKEN = sorted((CORPUS / "broken").glob("*.py"))
CORRECT = sorted((CORPUS / "correct").glob("*.py"))
PARTS = 10
"""So that several processes can share the work."""
CALLBACK_S = 3.0
"""Less than the default, because some of them hang; no callback of the others takes a hundredth of it."""


def _check_all(paths: list[Path]) -> list[tuple[Path, Report]]:
    with ThreadPoolExecutor(2) as pool:
        return list(zip(paths, pool.map(_check, paths), strict=True))


def _check(path: Path) -> Report:
    return check_path(str(path), timeout_s=CALLBACK_S)


def _rules_of(path: Path) -> set[str]:
    head = path.read_text(encoding="utf-8").partition(":")[0]
    return set(re.findall(r"R\d\d", head))


def test_the_corpus_is_large_and_says_what_it_is() -> None:
    assert len(BROKEN) >= 100
    assert len(CORRECT) >= 40
    assert [path.name for path in BROKEN if not _rules_of(path)] == []


@pytest.mark.parametrize("part", range(PARTS))
def test_every_broken_plugin_is_caught_by_a_rule_that_it_names(part: int) -> None:
    found = {path: report.failed_ids for path, report in _check_all(BROKEN[part::PARTS])}
    missed = [path.stem for path, rules in found.items() if not rules]
    misjudged = {path.stem: sorted(rules) for path, rules in found.items() if not rules & _rules_of(path)}
    assert missed == [], f"{len(found) - len(missed)} of {len(found)} caught"
    assert misjudged == {}


@pytest.mark.parametrize("part", range(PARTS))
def test_no_correct_plugin_is_accused(part: int) -> None:
    accused = {path.stem: report.render() for path, report in _check_all(CORRECT[part::PARTS]) if not report.ok}
    assert list(accused) == [], "\n".join(accused.values())
