"""Plugin libraries of the process, found through the dynamic linker, and the creators that they registered for it.

A library is found however it was loaded: with ``ctypes.CDLL``, ``LD_PRELOAD``, as a dependency of another library, or
by C++ code. Works on Linux; elsewhere no library is found.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from ctypes import CFUNCTYPE, POINTER
from dataclasses import dataclass
from typing import Final

from dovetail.errors import PluginError
from dovetail.plugin.creators import CreatorKey
from dovetail.plugin.native.image import NativeImage, find_loaded_image
from dovetail.plugin.native.layout import NativeTable
from dovetail.plugin.native.linker import count_loads, find_file, hold_object, list_objects
from dovetail.plugin.native.registrations import Registration, RegistrationScope, read_registrations

__all__ = ["LoadedLibraries", "ProcessRegistration"]

_ENTRY: Final = b"dovetail_plugin_abi"
_TABLE: Final = CFUNCTYPE(POINTER(NativeTable))


@dataclass(frozen=True)
class ProcessRegistration:
    """A creator that a library registered for the process."""

    image: NativeImage
    entry: Registration


class LoadedLibraries:
    """The registrations of all plugin libraries of the process.

    Libraries with registrations for the process stay loaded, so that no creator dangles after ``dlclose``.
    """

    def __init__(self) -> None:
        self.registrations: tuple[ProcessRegistration, ...] = ()
        """Registrations with the scope ``PROCESS``."""
        self.duplicates: tuple[str, ...] = ()
        """Descriptions of registrations with the scope ``DUPLICATE``."""
        self.problems: tuple[str, ...] = ()
        """Descriptions of libraries and registrations that cannot be used."""
        self._lock: Final = threading.RLock()
        self._is_busy = False
        self._generation = 0
        self._counts: tuple[int, int] | None = None
        self._files: list[str] = []
        self._state: list[tuple[int, int]] = []

    def refresh(self) -> int:
        """Read what changed since the last call; returns a number that changes with the registrations."""
        with self._lock:
            if not self._is_busy:
                self._is_busy = True
                try:
                    self._update()
                finally:
                    self._is_busy = False
            return self._generation

    def _update(self) -> None:
        counts = count_loads()
        if counts is None:
            return
        if counts != self._counts:
            self._files, self._counts = list(_find_plugin_files()), counts
        state = [each for each in map(_read_version, self._files) if each is not None]
        if state != self._state:
            self._state = state
            self._read()
            self._generation += 1

    def _read(self) -> None:
        found: list[ProcessRegistration] = []
        duplicates, problems = list[str](), list[str]()
        for file in self._files:
            try:
                image = find_loaded_image(file)
                if image is not None:
                    for entry in read_registrations(image):
                        if entry.scope is RegistrationScope.PROCESS:
                            found.append(ProcessRegistration(image, entry))
                        elif entry.scope is RegistrationScope.DUPLICATE:
                            duplicates.append(_describe_duplicate(image, entry))
                    image.call("registration_problem", "registerCreator")
            except PluginError as error:
                problems.append(str(error))
        self.registrations, self.duplicates, self.problems = tuple(found), tuple(duplicates), tuple(problems)


def _describe_duplicate(image: NativeImage, entry: Registration) -> str:
    key = CreatorKey(entry.name, entry.version, entry.namespace)
    return f"{image.path}: a creator for plugin {key} is not registered, because another one is"


def _find_plugin_files() -> Iterator[str]:
    """The names of the loaded objects that have the entry point, in the order in which they were loaded."""
    names, seen = list_objects(), set[int]()
    for name in names:
        with hold_object(name) as find:
            entry = find(_ENTRY)
            if entry is not None and entry not in seen:
                seen.add(entry)
                owner = find_file(entry)  # the entry point may be that of a library with which the object is linked
                yield owner if owner in names else name


def _read_version(file: str) -> tuple[int, int] | None:
    """The entry point of a library and the version of its registrations; None where it was closed."""
    with hold_object(file) as find:
        entry = find(_ENTRY)
        if entry is None:
            return None
        table = _TABLE(entry)().contents
        # A library of another version is judged once, when its image is made.
        is_current = table.size == ctypes.sizeof(NativeTable)
        return entry, table.registrations_version() if is_current else 0
