"""How to change a manifest: small functions that each make an edit, by the path of what is changed."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from tests.support.attack_plans import Json

__all__ = [
    "FIELD",
    "LIB",
    "NOTE",
    "Case",
    "Edit",
    "S",
    "V",
    "W",
    "append",
    "body",
    "both",
    "bury",
    "drop",
    "each",
    "nested",
    "put",
    "step",
    "twice",
    "value",
]

Edit = Callable[[Json], object]
Case = tuple[str, Edit]


def _walk(manifest: Any, path: str) -> tuple[Any, Any]:
    """The container that the last part of a path is in, and that part as its key."""
    *parents, last = path.split("/")
    for part in parents:
        manifest = manifest[int(part)] if isinstance(manifest, list) else manifest[part]
    return manifest, int(last) if isinstance(manifest, list) else last


def put(path: str, value: Any) -> Edit:
    """Set what a path names; a function makes the new value from the old."""

    def edit(manifest: Json) -> None:
        owner, key = _walk(manifest, path)
        owner[key] = value(owner[key]) if callable(value) else copy.deepcopy(value)

    return edit


def drop(path: str) -> Edit:
    """Remove what a path names."""

    def edit(manifest: Json) -> None:
        owner, key = _walk(manifest, path)
        del owner[key]

    return edit


def both(*edits: Edit) -> Edit:
    """One change after the other."""

    def edit(manifest: Json) -> None:
        for part in edits:
            part(manifest)

    return edit


def value(number: int, **fields: Any) -> Edit:
    """Set fields of a value of the first program; those set to ``None`` go."""
    return _fields(f"programs/0/values/{number}", fields)


def step(number: int, **fields: Any) -> Edit:
    """The same for a step."""
    return _fields(f"programs/0/steps/{number}", fields)


def body(number: int, **fields: Any) -> Edit:
    """The same for the first body of a step."""
    return _fields(f"programs/0/steps/{number}/bodies/0", fields)


def _fields(path: str, fields: dict[str, Any]) -> Edit:
    def edit(manifest: Json) -> None:
        owner, key = _walk(manifest, path)
        for name, new in fields.items():
            owner[key][name] = copy.deepcopy(new)
            if new is None:
                del owner[key][name]

    return edit


def each(plan: str, *edits: Edit) -> list[Case]:
    """Several edits of one plan."""
    return [(plan, edit) for edit in edits]


def nested(depth: int) -> Any:
    """An expression so deep."""
    dim: Any = "_d0"
    for _ in range(depth):
        dim = ["sum", dim, 1]
    return dim


def append(path: str, item: Any) -> Edit:
    """Add an item to a list."""
    return put(path, lambda old: [*old, copy.deepcopy(item)])


def twice(path: str, index: int) -> Edit:
    """Add a copy of an item to its list."""
    return put(path, lambda old: [*old, copy.deepcopy(old[index])])


def bury(depth: int) -> Edit:
    """Put loops into loops."""
    inner: Json = {"inputs": [0, 1], "outputs": [1], "steps": []}
    inner["values"] = [{"name": name, "dtype": "bool", "kind": "input"} for name in ("i", "was")]
    for _ in range(depth):
        loop = {"name": "deeper", "kind": "control", "op": "Loop", "provider": "cpu", "inputs": [0, 1], "outputs": []}
        inner = {**inner, "steps": [{**loop, "bodies": [inner]}]}
    return lambda manifest: manifest["programs"][0]["steps"][0]["bodies"][0]["steps"].extend(inner["steps"])


W = "(Unnamed Layer* 0) [Constant].constant"
LIB = "library:carried_library"
V = "programs/0/values"
S = "programs/0/steps"
FIELD = f"{S}/1/plugin/fields/0"
NOTE = {"name": "note", "type": "float", "value": 1.0}
