"""What a plugin object holds: a walk over its attributes, snapshots, and what changed between two of them.

The walk follows lists, tuples, sets, dicts and objects of the plugin's own classes, through ``__dict__`` and
``__slots__``. Everything else (locks, modules, registry resources, arrays of other libraries) is opaque: only its class
is compared. So a snapshot shows what a plugin keeps in itself and not what it reaches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, Final

import numpy as np
import xxhash

from dovetail.plugin.check.plugin_object import Specimen
from dovetail.plugin.fields import PluginField
from dovetail.plugin.interfaces import IPluginCapability, IPluginResource, IPluginResourceContext, IPluginV3

__all__ = ["State", "buffers_of", "changes", "numbers_of", "state_of"]

State = dict[str, object]
"""Path of an attribute -> something that compares equal when the value is the same."""

_DEEPEST: Final = 6
_MOST_ITEMS: Final = 2000
_PLAIN: Final = (bool, int, float, complex, str, bytes, bytearray, type(None), Enum, np.generic)
_CONTAINERS: Final = (list, tuple, set, frozenset, deque, Mapping)


def state_of(specimen: Specimen) -> State:
    """A snapshot of everything the plugin object and its capabilities hold."""
    return {path: _token(value) for path, value in _walk(specimen)}


def changes(before: State, after: State) -> list[str]:
    """The attributes that differ, each as ``path: old -> new``."""
    paths = [*before, *(path for path in after if path not in before)]
    missing = "(not set)"
    return [
        f"{path}: {_show(before.get(path, missing))} -> {_show(after.get(path, missing))}"
        for path in paths
        if before.get(path, missing) != after.get(path, missing)
    ]


def buffers_of(specimen: Specimen) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """Every array that the plugin object holds, with the path of the attribute."""
    for path, value in _walk(specimen):
        if isinstance(value, PluginField):
            value = value.buffer
        elif isinstance(value, memoryview):
            value = np.frombuffer(value, np.uint8)
        if isinstance(value, np.ndarray):
            yield path, value


def numbers_of(specimen: Specimen) -> dict[str, float]:
    """Every single number that the plugin object holds, by the path of the attribute; arrays of one element too."""
    numbers = {}
    for path, value in _walk(specimen):
        if isinstance(value, np.ndarray) and value.size == 1 and value.dtype.kind in "iuf":
            value = value.reshape(-1)[0]
        if isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool):
            numbers[path] = float(value)
    return numbers


def _walk(specimen: Specimen) -> Iterator[tuple[str, Any]]:
    walk = _StateWalk({_package_of(base) for part in specimen.parts() for base in type(part).__mro__})
    yield from walk.visit("self", specimen.plugin, 0)
    for name in ("core", "build", "runtime"):
        yield from walk.visit(f"{name} capability", getattr(specimen, name), 0)


class _StateWalk:
    """One walk; ``packages`` are those in which the author of the plugin wrote its classes."""

    def __init__(self, packages: set[str]) -> None:
        self._packages = packages - {"builtins", "dovetail"}
        self._seen: set[int] = set()

    def visit(self, path: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
        """Yield every leaf at and below a value."""
        if isinstance(value, _PLAIN) or not (isinstance(value, _CONTAINERS) or self._is_own_object(value)):
            yield path, value
            return
        if id(value) in self._seen or depth > _DEEPEST:
            return
        self._seen.add(id(value))
        if isinstance(value, _CONTAINERS):
            yield path, (type(value).__name__, len(value))
        for name, item in _children(path, value):
            yield from self.visit(name, item, depth + 1)

    def _is_own_object(self, value: Any) -> bool:
        if isinstance(value, IPluginV3 | IPluginCapability):
            return True
        if isinstance(value, type | IPluginResource | IPluginResourceContext) or callable(value):
            return False
        return _package_of(type(value)) in self._packages


def _package_of(cls: type) -> str:
    return cls.__module__.partition(".")[0]


def _children(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from ((f"{path}[{key!r}]", item) for key, item in list(value.items())[:_MOST_ITEMS])
    elif isinstance(value, set | frozenset):
        yield from ((f"{path}{{{item!r}}}", item) for item in sorted(value, key=repr)[:_MOST_ITEMS])
    elif isinstance(value, _CONTAINERS):
        yield from ((f"{path}[{index}]", item) for index, item in enumerate(list(value)[:_MOST_ITEMS]))
    else:
        yield from ((f"{path}.{name}", item) for name, item in _attributes(value))


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    yield from list(getattr(value, "__dict__", {}).items())
    for base in type(value).__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            member = base.__dict__.get(name)
            if hasattr(member, "__get__") and name not in ("__dict__", "__weakref__") and hasattr(value, name):
                yield name, getattr(value, name)


def _token(value: Any) -> object:
    if isinstance(value, np.ndarray):
        return _array_token(value)
    if isinstance(value, PluginField):
        return (value.name, value.type.name, None if value.buffer is None else _array_token(value.buffer))
    if isinstance(value, float) and value != value:
        return "nan"
    if isinstance(value, (tuple, *_PLAIN)):
        return bytes(value) if isinstance(value, bytearray) else value
    if type(value).__module__ == "dovetail.types":
        return repr(value)
    return f"an object of class {type(value).__qualname__}"


def _array_token(array: np.ndarray[Any, Any]) -> object:
    if array.dtype.hasobject:
        return f"an array of {array.size} objects"
    digest = xxhash.xxh3_64_hexdigest(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return f"array {array.dtype.name}{array.shape} #{digest[:8]}"


def _show(token: object) -> str:
    text = str(token)
    return text if len(text) <= 60 else text[:57] + "..."
