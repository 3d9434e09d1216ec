"""The execution provider inside ONNX Runtime stays within its limits, in the best of a few tries: load only adds."""

from __future__ import annotations

import pytest

from benchmarks.ort_ep import LIMITS, derive, measure_sides

_TRIES = 4


@pytest.mark.timeout(900)
def test_what_a_partition_and_a_custom_op_add() -> None:
    best: dict[str, float] = {}
    for _ in range(_TRIES):
        for name, us in derive(measure_sides(rounds=3, budget_s=0.4)).items():
            best[name] = min(us, best.get(name, us))
        missed = {name: best[name] for name, limit in LIMITS.items() if best[name] > limit}
        if not missed:
            return
    assert missed == {}
