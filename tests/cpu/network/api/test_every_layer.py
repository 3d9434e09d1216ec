"""A walk over every ``add_*`` of the network: each attribute off its default, each dynamic input, against NumPy."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from dovetail.network.api.definition import Network
from dovetail.network.api.layers.base import ILayer
from dovetail.network.api.properties import Property
from tests.support.layer_cases import CASES, Case, Sketch, check

FAMILIES = ("windows", "elements", "shapes", "axes", "images", "special")
for family in FAMILIES:
    importlib.import_module(f"tests.cpu.network.api.cases_{family}")

ELSEWHERE = {
    "add_input": "every case adds inputs",
    "add_loop": "test_loops.py",
    "add_if_conditional": "test_loops.py",
    "add_model": "test_add_model.py",
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


def test_every_property_of_every_layer_is_set_by_a_case(monkeypatch: pytest.MonkeyPatch) -> None:
    """A property that no case sets after the layer was added could do nothing at all."""
    found: set[tuple[type, str]] = set()

    def note(layer: ILayer, name: str, value: Any) -> None:
        if getattr(layer, "_network", None) is not None and layer in layer._network._layers:
            found.add((type(layer), name))
        object.__setattr__(layer, name, value)

    monkeypatch.setattr(ILayer, "__setattr__", note)
    for case in CASES:
        case.make(Sketch())
    wanted = {(kind, name) for kind in _layer_classes(ILayer) for name in _settable(kind)}
    assert wanted - found == set()


def _layer_classes(base: type) -> list[type]:
    """The layer classes that can be added, but for those at the boundary of loops and conditionals."""
    below = [found for kind in base.__subclasses__() for found in _layer_classes(kind)]
    is_real = "_layer_type" in vars(base) and ".layers." in base.__module__
    return [base, *below] if is_real else below


def _settable(kind: type) -> set[str]:
    shared = {name for name, value in vars(ILayer).items() if isinstance(value, property)}
    names = {name: value for parent in reversed(kind.__mro__) for name, value in vars(parent).items()}
    settable = {name for name, value in names.items() if isinstance(value, Property) or getattr(value, "fset", None)}
    return settable - (shared - {"type"} if isinstance(names.get("type"), Property) else shared)
