"""The fuzzer's corpus, case by case: each ends in a result or a named error; and the fuzzer itself is as it says."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from tests.fuzz.targets import TARGETS, read_corpus
from tests.fuzz.worker import make_case

FUZZ = Path(__file__).parents[1] / "fuzz"
REPLAYED = 40
"""Cases of each target in every run of the tests; `make fuzz` uses all of them, and many more."""


@pytest.mark.parametrize("name", ["models", "files"])
def test_kept_cases_end_well(name: str) -> None:
    target, kept = TARGETS[name], read_corpus(name)
    for signature in sorted(kept)[:: max(len(kept) // REPLAYED, 1)]:
        assert target.run(kept[signature], random.Random(0))


@pytest.mark.parametrize("name", ["plans", "files"])
def test_the_same_number_is_the_same_case(name: str) -> None:
    target = TARGETS[name]
    seeds = target.seeds()
    cases = [[make_case(target, seeds, 1, number)[0] for number in range(20)] for _ in range(2)]
    assert cases[0] == cases[1]
    assert len(set(cases[0])) > 15


def test_what_was_fuzzed_is_counted() -> None:
    counts = json.loads((FUZZ / "counts.json").read_text(encoding="utf-8"))
    assert counts.keys() == TARGETS.keys()
    for entry in counts.values():
        assert entry["cases"] > 0
        assert entry["peak_mib"] < 2048
        assert entry["slowest_s"] < 30


def test_the_corpus_is_small() -> None:
    assert sum(path.stat().st_size for path in (FUZZ / "corpus").iterdir()) < 500_000
