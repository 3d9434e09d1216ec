"""onnx's own backend suite: every case passes, or stands in the list with a reason, and the README tells the counts.

The cases run in parts, so that several processes share them; each process makes all cases first, which takes a while.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conformance.onnx_backend.harness import (
    PROVIDER_SETS,
    Case,
    Skip,
    load_cases,
    load_counts,
    load_skips,
    run_case,
)

PARTS = 12
LEAST_SHARE = {"default": 0.98, "cpu": 0.97}
README = Path(__file__).parents[3] / "README.md"


def find_skip(case: Case, provider_set: str) -> Skip | None:
    return next((skip for skip in load_skips() if skip.covers(case.name, provider_set)), None)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("provider_set", PROVIDER_SETS)
def test_a_case_passes_unless_it_is_listed(provider_set: str, part: int) -> None:
    wrong = []
    for case in load_cases()[part::PARTS]:
        skip = find_skip(case, provider_set)
        if skip is not None and not skip.run:
            continue
        outcome = run_case(case, PROVIDER_SETS[provider_set])
        if outcome.reason and skip is None:
            wrong.append(f"{case.name} fails: {outcome.reason}")
        elif not outcome.reason and skip is not None:
            wrong.append(f"{case.name} passes; take the line '{skip.test}' out of skips.toml")
    assert not wrong, "\n".join(wrong)


@pytest.mark.timeout(600)
def test_every_line_of_the_list_means_a_case_and_has_a_reason() -> None:
    for skip in load_skips():
        assert skip.reason
        for provider_set in skip.providers:
            assert any(skip.covers(case.name, provider_set) for case in load_cases()), f"{skip.test} is no case"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("provider_set", PROVIDER_SETS)
def test_the_counts_are_what_the_list_leaves(provider_set: str) -> None:
    """The runs above show that exactly the cases pass that are not listed, so this is what was seen."""
    cases = load_cases()
    listed = sum(find_skip(case, provider_set) is not None for case in cases)
    assert load_counts()[provider_set] == {"cases": len(cases), "pass": len(cases) - listed}
    assert (len(cases) - listed) / len(cases) >= LEAST_SHARE[provider_set]


def test_the_readme_shows_the_counts() -> None:
    rows = re.findall(r"^\| `(\w+)`[^|]*\| ([\d,]+) \| ([\d,]+) \|", README.read_text(encoding="utf-8"), re.MULTILINE)
    shown = {name: {"cases": _number(total), "pass": _number(passed)} for name, total, passed in rows}
    assert {name: shown.get(name) for name in PROVIDER_SETS} == load_counts()


def _number(text: str) -> int:
    return int(text.replace(",", ""))
