"""Version 1 of the provider contract is frozen: what a package was written against is there, as it was.

Names, callbacks and fields may be added where a provider that knows nothing of them goes on working: a callback with a
default, a field with a default. ``python -m tests.meta.test_provider_contract`` then writes the file anew. Anything
else is version 2.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import json
from pathlib import Path
from typing import Any

import pytest

from dovetail.provider import interfaces

FROZEN = Path(__file__).parent / "provider_contract_1.json"


def describe_contract() -> dict[str, dict[str, str]]:
    """Each public name of the contract with what it is made of."""
    return {name: _describe(getattr(interfaces, name)) for name in sorted(interfaces.__all__)}


def _describe(item: Any) -> dict[str, str]:
    if not inspect.isclass(item):
        return {"": str(inspect.signature(item)) if callable(item) else repr(item)}
    if issubclass(item, enum.Enum):
        return {each.name: repr(each.value) for each in item}
    members = {name: _describe_member(value) for name, value in _list_members(item).items()}
    if dataclasses.is_dataclass(item):
        members |= {field.name: _describe_field(field) for field in dataclasses.fields(item)}
    return members


def _list_members(item: type) -> dict[str, Any]:
    """What is public in a class and in what it derives from here; a later class goes before an earlier one."""
    bases = [base for base in reversed(item.__mro__) if base.__module__.startswith("dovetail")]
    found = {name: value for base in bases for name, value in vars(base).items()}
    return {name: value for name, value in found.items() if not name.startswith("_")}


def _describe_member(value: Any) -> str:
    kind = "abstract " if getattr(value, "__isabstractmethod__", False) else ""
    plain = value.__func__ if isinstance(value, classmethod | staticmethod) else value
    if isinstance(plain, property):
        return f"{kind}property"
    return kind + (str(inspect.signature(plain)) if inspect.isfunction(plain) else "attribute")


def _describe_field(field: Any) -> str:
    has_default = field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
    return f"field {field.type}" + (" with a default" if has_default else "")


def list_breaks(frozen: dict[str, dict[str, str]], now: dict[str, dict[str, str]]) -> list[str]:
    """What a package that was written against the frozen contract would miss."""
    breaks = [f"'{name}' is gone" for name in frozen if name not in now]
    for name in frozen.keys() & now.keys():
        for member, text in frozen[name].items():
            if now[name].get(member) != text:
                breaks.append(f"'{name}.{member}' was {text!r} and is {now[name].get(member)!r}")
        for member in now[name].keys() - frozen[name].keys():
            breaks += _check_added(name, member, now[name][member])
    return sorted(breaks)


def _check_added(name: str, member: str, text: str) -> list[str]:
    is_required = text.startswith("abstract") or (text.startswith("field") and not text.endswith("with a default"))
    return [f"'{name}.{member}' is new and has no default"] if is_required else []


def test_nothing_of_the_frozen_contract_has_changed() -> None:
    frozen = json.loads(FROZEN.read_text(encoding="utf-8"))
    assert interfaces.API_VERSION == 1, "a new version has a file of its own"
    assert list_breaks(frozen, describe_contract()) == []


@pytest.mark.parametrize(
    ("now", "told"),
    [
        ({}, "'A' is gone"),
        ({"A": {"run": "(self, x)"}}, "'A.run' was '(self)' and is '(self, x)'"),
        ({"A": {"run": "(self)", "stop": "abstract (self)"}}, "'A.stop' is new and has no default"),
        ({"A": {"run": "(self)", "size": "field int"}}, "'A.size' is new and has no default"),
        ({"A": {"run": "(self)", "size": "field int with a default"}, "B": {}}, None),
    ],
)
def test_what_breaks_a_package_is_told(now: dict[str, dict[str, str]], told: str | None) -> None:
    assert list_breaks({"A": {"run": "(self)"}}, now) == ([told] if told else [])


if __name__ == "__main__":
    FROZEN.write_text(json.dumps(describe_contract(), indent=1, sort_keys=True) + "\n", encoding="utf-8")
