"""The plugins that decorators defined: what each is made of, and where they are found by name.

``register`` begins a definition; ``impl``, ``autotune`` and ``aot_impl`` complete it; ``op`` calls it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from dovetail_tensorrt.trt.plugin.errors import DecoratorError
from dovetail_tensorrt.trt.plugin.signatures import Callback, Signature, read_callback, read_registered

__all__ = ["Definition", "DefinitionTable", "definitions"]

Function = TypeVar("Function", bound=Callable[..., Any])

_FORBIDDEN: Final = frozenset(("", "trt", "tensorrt", "std"))
"""Namespaces that are not the author's."""


class Definition:
    """One plugin: its register function and what was added to it."""

    def __init__(self, namespace: str, name: str, signature: Signature) -> None:
        self.namespace, self.name, self.signature = namespace, name, signature
        self.impl: Callback | None = None
        self.aot_impl: Callback | None = None
        self.autotune: Callback | None = None
        self.creator: Any = None
        """What the registry has of it; None until it is registered there."""
        self.is_replaced = False
        """Whether its module was imported again, so that another definition has its name."""

    @property
    def id(self) -> str:
        """The name with its namespace."""
        return f"{self.namespace}::{self.name}"

    @property
    def where(self) -> str:
        """How messages name it."""
        code = self.signature.function.__code__
        return f"plugin '{self.id}' ({code.co_filename}:{code.co_firstlineno})"

    def is_written_at(self, function: Callable[..., Any]) -> bool:
        """Whether a function is another object of the same lines: its module was imported again."""
        own, other = self.signature.function, getattr(function, "__code__", None)
        places = [(code.co_filename, code.co_firstlineno, code.co_name) for code in (own.__code__, other) if code]
        return function is not own and len(places) == 2 and places[0] == places[1]

    def check_attributes(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The attributes of a call, all of them and each of its type."""
        wanted = self.signature.attributes
        for name in values:
            if name not in wanted:
                known = ", ".join(wanted) or "no attributes"
                raise DecoratorError(f"there is no attribute '{name}'", where=self.where, expected=known)
        missing = [name for name in wanted if name not in values]
        if missing:
            raise DecoratorError(
                f"attribute '{missing[0]}' has no value",
                where=self.where,
                fix=f"pass all attributes by name: {', '.join(wanted)}",
            )
        return {name: wanted[name].check(name, values[name], self.where) for name in wanted}

    def select(self, callback: Callback, values: Mapping[str, Any]) -> list[Any]:
        """The values of the attributes that a function takes."""
        return [values[name] for name in callback.attributes]


class DefinitionTable:
    """All definitions of the process, by name."""

    def __init__(self) -> None:
        self._known: dict[str, Definition] = {}

    def define(self, plugin_id: str, function: Callable[..., Any]) -> Definition:
        """Begin a definition."""
        namespace, name = split_id(plugin_id)
        known = self._known.get(plugin_id)
        if known is not None and not known.is_written_at(function):
            raise DecoratorError(
                f"'{plugin_id}' is registered twice",
                where=known.where,
                fix="give the second one another name",
            )
        made = Definition(namespace, name, read_registered(function))
        if known is not None:
            known.is_replaced = True
        self._known[plugin_id] = made
        return made

    def complete(self, plugin_id: str, kind: str, function: Callable[..., Any]) -> Definition:
        """Add a function to a definition."""
        split_id(plugin_id)
        found = self._known.get(plugin_id)
        if found is None:
            raise DecoratorError(
                f"'{plugin_id}' is not registered",
                where=f"@{kind}",
                expected=", ".join(sorted(self._known)) or "a plugin, and there is none",
                fix=f'decorate its shape function with @register("{plugin_id}") first',
            )
        if getattr(found, kind) is not None:
            raise DecoratorError(f"'{plugin_id}' has an {kind} already", where=found.where)
        setattr(found, kind, read_callback(function, kind, found.signature))
        return found

    def find(self, namespace: str, name: str) -> Definition | None:
        """The definition of that name."""
        return self._known.get(f"{namespace}::{name}")

    def names(self, namespace: str) -> Sequence[str]:
        """The plugins of a namespace."""
        return [each.name for each in self._known.values() if each.namespace == namespace]

    def namespaces(self) -> Sequence[str]:
        """All namespaces."""
        return list(dict.fromkeys(each.namespace for each in self._known.values()))

    def forget(self, plugin_id: str) -> None:
        """Take a definition out again."""
        self._known.pop(plugin_id, None)


def split_id(plugin_id: Any) -> tuple[str, str]:
    """The namespace and the name of ``namespace::name``, checked."""
    parts = plugin_id.split("::") if isinstance(plugin_id, str) else []
    if len(parts) != 2 or not parts[1]:
        raise DecoratorError("a plugin is called 'namespace::name'", got=repr(plugin_id))
    namespace, name = parts
    if namespace in _FORBIDDEN:
        raise DecoratorError(
            f"'{namespace}' cannot be the namespace of a plugin", got=plugin_id, fix="choose one of your own"
        )
    if "." in plugin_id:
        raise DecoratorError("the name of a plugin has no '.'", got=plugin_id)
    return namespace, name


definitions: Final = DefinitionTable()
