"""A walk over every ``add_*`` of the network: each attribute off its default, each dynamic input, against NumPy."""

from __future__ import annotations

import importlib

import pytest

from dovetail.network.definition import Network
from tests.support.layer_cases import CASES, Case, check

FAMILIES = ("windows", "elements", "shapes", "axes", "images", "special")
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


def test_every_method_has_a_case() -> None:
    methods = {name for name in dir(Network) if name.startswith("add_")}
    covered = {case.method for case in CASES} | ELSEWHERE.keys()
    assert methods - covered == set(), "add a case to the table"
    assert covered - methods == set(), "cases of methods that do not exist"


def test_every_property_of_every_layer_is_set_by_a_case() -> None:
    """A property that no case sets could do nothing at all."""
    unset = {
        (kind.__name__, name)
        for kind in _layer_classes(ILayer)
        for name, value in vars(kind).items()
        if isinstance(value, Property) and name not in _names_set_in_cases()
    }
    assert unset == set()


def _layer_classes(base: type) -> list[type]:
    return [base, *(found for kind in base.__subclasses__() for found in _layer_classes(kind))]


@functools.cache
def _names_set_in_cases() -> frozenset[str]:
    text = "\n".join(path.read_text() for path in Path(__file__).parent.glob("*.py"))
    return frozenset(
        re.findall(r"\blayer\.(\w+)(?=[^=\n]*=[^=])", text) + re.findall(r"setattr\(layer, (\w+)", text) + ["start", "shape", "stride"]
    )
