"""A walk over every ``add_*`` of the network: each attribute off its default, each dynamic input, against NumPy."""

from __future__ import annotations

import importlib

import pytest

from dovetail.network.definition import Network
from tests.support.layer_cases import CASES, Case, check

FAMILIES = ("windows", "elements", "shapes")
for family in FAMILIES:
    importlib.import_module(f"tests.cpu.network.cases_{family}")

ELSEWHERE = {
    "add_input": "every case adds inputs",
    "add_loop": "test_loops.py",
    "add_if_conditional": "test_loops.py",
}
"""Methods whose cases are not in the table, and where they are."""


def _name(case: Case) -> str:
    return f"{case.method[4:]}-{case.label}".replace(" ", "_")


@pytest.mark.parametrize("case", CASES, ids=_name)
def test_layer(case: Case) -> None:
    check(case, open_dims=False)


@pytest.mark.parametrize("case", [case for case in CASES if case.open_dims], ids=_name)
def test_layer_with_open_dims(case: Case) -> None:
    check(case, open_dims=True)
