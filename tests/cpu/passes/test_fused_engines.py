"""Whole engines of the tiny exports: on the reference provider, which fuses, and with the default providers."""

from __future__ import annotations

from typing import Any

import pytest

import dovetail as dt
from tests.support.transformers_models import FUSED, NAMES, assert_close, expected, make_inputs, path_of, shapes_of


def run(engine: Any, inputs: dict[str, Any]) -> list[Any]:
    result = engine(**inputs)
    return list(result.values()) if isinstance(result, dict) else [result]


@pytest.mark.parametrize("name", NAMES)
def test_the_reference_provider(name: str) -> None:
    engine = dt.compile(path_of(name), providers=["cpu"])
    ops = [step.op for program in engine.manifest.programs for step in program.steps if hasattr(step, "op")]
    assert {op: ops.count(op) for op in FUSED[name.split("_")[0]]} == FUSED[name.split("_")[0]]
    for batch, sequence in shapes_of(name):
        assert_close(expected(name, batch, sequence), run(engine, make_inputs(name, batch, sequence)))


@pytest.mark.parametrize("name", NAMES)
def test_the_default_providers(name: str) -> None:
    engine = dt.compile(path_of(name))
    for batch, sequence in shapes_of(name):
        assert_close(expected(name, batch, sequence), run(engine, make_inputs(name, batch, sequence)))
