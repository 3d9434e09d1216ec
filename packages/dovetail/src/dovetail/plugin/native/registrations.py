"""The creators that a C++ library registered by itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import Any, NamedTuple

from dovetail.plugin.native.image import NativeImage
from dovetail.plugin.native.layout import RegistrationSink

__all__ = ["Registration", "RegistrationScope", "as_loading", "read_registrations", "set_scope"]


class RegistrationScope(IntEnum):
    """The registries that see a registration."""

    PROCESS = 0
    """The registry of the process."""
    LOADER = 1
    """A registry that loaded the library."""
    DUPLICATE = 2
    """None: the registry of the process had a creator of the same name, version and namespace."""


class Registration(NamedTuple):
    """One creator under one namespace."""

    address: int
    name: str
    version: str
    namespace: str
    is_safe: bool
    scope: RegistrationScope


def read_registrations(image: NativeImage) -> list[Registration]:
    """Return the registrations of a library, in order."""
    found: list[Registration] = []

    def receive(_token: int | None, entry: Any) -> None:
        record = entry.contents
        name, version, namespace = (
            (raw or b"").decode(errors="replace") for raw in (record.name, record.version, record.namespace)
        )
        found.append(
            Registration(
                record.creator, name, version, namespace, bool(record.is_safe), RegistrationScope(record.scope)
            )
        )

    image.call("registrations", "registerCreator", RegistrationSink(receive), None)
    return found


def set_scope(image: NativeImage, address: int, namespace: str, scope: RegistrationScope, *, safe: bool) -> None:
    """Set the scope of a registration; a creator that the library did not register itself is added.

    Args:
        image: The library.
        address: The creator.
        namespace: The namespace under which it is registered.
        scope: The scope.
        safe: Whether it is registered as safe.
    """
    image.call("set_scope", "registerCreator", address, namespace.encode(), int(safe), int(scope))


@contextmanager
def as_loading(image: NativeImage) -> Iterator[None]:
    """Let the library register creators for the registry that loads it instead of for the process."""
    image.call("set_loading", "registerCreator", 1)
    try:
        yield
    finally:
        image.call("set_loading", "registerCreator", 0)
