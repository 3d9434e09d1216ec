"""onnx's backend suite with OpenVINO first and ``cpu`` for the rest: what passes with ``cpu`` alone passes here too."""

from __future__ import annotations

import warnings

import pytest

import dovetail
from tests.conformance.onnx_backend.harness import Case, compare, load_cases, load_skips

PARTS = 8
LEAST_SHARE = 0.6
"""Of the cases, how many have a part in OpenVINO: it was seven of ten."""
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def _is_listed(case: Case) -> bool:
    return any(skip.covers(case.name, "cpu") for skip in load_skips())


def _run(case: Case) -> set[str]:
    """Run a case and tell which providers have steps of it."""
    model, data_sets = case.load()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with dovetail.compile(model, providers=["openvino", "cpu"]) as engine:
            for inputs, expected in data_sets:
                results = engine(*inputs)
                compare(expected, list(results.values()) if isinstance(results, dict) else [results], case)
            return {step.provider for program in engine.manifest.programs for step in program.steps}


@pytest.mark.parametrize("part", range(PARTS))
def test_what_passes_with_cpu_passes(part: int) -> None:
    wrong, taken = [], []
    for case in load_cases()[part::PARTS]:
        if _is_listed(case):
            continue
        try:
            taken.append("openvino" in _run(case))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what this is for
            wrong.append(f"{case.name}: {error}")
    assert not wrong, "\n".join(wrong)
    assert sum(taken) >= LEAST_SHARE * len(taken)
