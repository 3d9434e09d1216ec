"""onnx's node tests on a GPU: what passes with ``cpu`` alone passes with CUDA first, most of it wholly there."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import dovetail
from tests.conformance.onnx_backend.harness import Case, compare, load_cases, load_skips

NUM_PARTS = 6
LEAST_WHOLE = 950
"""How many cases run on the device and nowhere else, in all parts together."""
SLACK = 12
"""How much fewer they may be in one part than in another."""


def _run(case: Case) -> set[str]:
    """Run a case and tell which providers have steps of it."""
    model, data_sets = case.load()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with dovetail.compile(model, providers=["cuda", "cpu"]) as engine:
            providers = {step.provider for program in engine.manifest.programs for step in program.steps}
            for inputs, expected in data_sets if "cuda" in providers else ():
                results = engine(*inputs)
                compare(expected, list(results.values()) if isinstance(results, dict) else [results], case)
            return providers


@pytest.mark.parametrize("part", range(NUM_PARTS))
def test_what_passes_with_cpu_passes(cuda: Any, part: int, capsys: Any) -> None:
    wrong, partly, wholly = [], 0, 0
    skips = load_skips()
    for case in [case for case in load_cases() if case.kind == "node"][part::NUM_PARTS]:
        if any(skip.covers(case.name, "cpu") for skip in skips):
            continue
        try:
            providers = _run(case)
            wholly += providers == {"cuda"}
            partly += "cuda" in providers and providers != {"cuda"}
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what this is for
            wrong.append(f"{case.name}: {str(error)[:300]}")
    with capsys.disabled():
        print(f"\nonnx's node tests: {wholly} run wholly on the device, {partly} in part, {len(wrong)} are wrong")
    assert not wrong, "\n".join(wrong)
    assert wholly >= LEAST_WHOLE // NUM_PARTS - SLACK
