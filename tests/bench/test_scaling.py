"""Build and run grow with the number of nodes and no faster; sizes are small, so the limit is generous."""

from __future__ import annotations

import pytest

from benchmarks.scaling import SHAPES, judge, measure_apart

SIZES = (300, 3_000)
GENEROUS = 3.0
"""Ten times the nodes at ten times the cost a node would be 10."""


@pytest.mark.slow
@pytest.mark.parametrize("provider", ["default", "cpu"])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_node_costs_the_same_in_a_larger_model(shape: str, provider: str) -> None:
    rows = [measure_apart(shape, provider, size) for size in SIZES]
    assert all(growth <= GENEROUS for _, growth, _ in judge(rows)), rows
