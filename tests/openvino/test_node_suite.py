"""onnx's backend suite with OpenVINO first and ``cpu`` for the rest: what passes with ``cpu`` alone passes here too.

``counts.json`` tells how many cases there are, in how many OpenVINO has a part, and in how many it has every node.
"""

from __future__ import annotations

import json
import warnings
from collections import Counter
from pathlib import Path

import pytest

import dovetail
from tests.conformance.onnx_backend.harness import Case, compare, load_cases, load_skips

COUNTS = Path(__file__).with_name("counts.json")
PARTS = 8
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
    wrong, seen = [], Counter[str]()
    for case in load_cases()[part::PARTS]:
        if _is_listed(case):
            continue
        try:
            providers = _run(case)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what this is for
            wrong.append(f"{case.name}: {error}")
            continue
        seen["pass"] += 1
        seen["part"] += "openvino" in providers
        seen["whole"] += providers == {"openvino"}
    assert not wrong, "\n".join(wrong)
    assert dict(seen) == json.loads(COUNTS.read_text(encoding="utf-8"))[part]
