"""Importing Python from memory: a finder and a loader for the sources of plugin libraries that plans carry.

The import system does the compiling and running; the loader only hands it the sources. The finder knows nothing but
names that begin with ``PREFIX``, so it cannot change what any other import finds.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import threading
from collections.abc import Sequence
from types import CodeType, ModuleType
from typing import Final

from dovetail.plugin.carried.payload import LibraryPayload

__all__ = ["PREFIX", "add_sources", "remove_sources"]

PREFIX: Final = "_dovetail_library_"
"""How the private names of all plugin libraries begin."""


class _SourceLoader(importlib.abc.InspectLoader):
    """Hands the import system one module of a payload; ``get_data`` serves its data files."""

    def __init__(self, library: _Library, path: str, *, is_package: bool) -> None:
        self._library = library
        self._path = path
        self._is_package = is_package

    def get_source(self, fullname: str) -> str:
        return self._library.payload.sources[self._path]

    def is_package(self, fullname: str) -> bool:
        return self._is_package

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_source(fullname), self._library.filename_of(self._path))

    def get_data(self, path: str) -> bytes:
        """The bytes of a file of the package, as ``pkgutil.get_data`` asks for it."""
        root = self._library.filename_of("")
        data = self._library.payload.data.get(path.removeprefix(root)) if path.startswith(root) else None
        if data is None:
            raise FileNotFoundError(path)
        return data


class _Library:
    """One payload under its private name."""

    def __init__(self, name: str, origin: str, payload: LibraryPayload) -> None:
        self.name = name
        self.origin = origin
        self.payload = payload

    def filename_of(self, path: str) -> str:
        """What tracebacks call a file of this library."""
        return f"{self.origin}/{path}"

    def find(self, fullname: str) -> importlib.machinery.ModuleSpec | None:
        """The spec of a module of this library."""
        relative = fullname.removeprefix(self.name).lstrip(".").replace(".", "/")
        if not self.payload.is_package:
            return self._spec(fullname, next(iter(self.payload.sources)), is_package=False) if not relative else None
        package = f"{relative}/__init__.py".lstrip("/")
        if package in self.payload.sources:
            return self._spec(fullname, package, is_package=True)
        module = f"{relative}.py"
        return self._spec(fullname, module, is_package=False) if module in self.payload.sources else None

    def _spec(self, fullname: str, path: str, *, is_package: bool) -> importlib.machinery.ModuleSpec:
        loader = _SourceLoader(self, path, is_package=is_package)
        spec = importlib.machinery.ModuleSpec(fullname, loader, origin=self.filename_of(path), is_package=is_package)
        spec.has_location = True  # sets __file__, which tracebacks and pkgutil.get_data need
        return spec


class _Finder(importlib.abc.MetaPathFinder):
    """Finds modules of the libraries that were added, by the first part of their name."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._libraries: dict[str, _Library] = {}

    def add(self, library: _Library) -> None:
        with self._lock:
            self._libraries[library.name] = library
            if self not in sys.meta_path:
                sys.meta_path.append(self)

    def remove(self, name: str) -> None:
        with self._lock:
            self._libraries.pop(name, None)
            if not self._libraries and self in sys.meta_path:
                sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        library = self._libraries.get(fullname.partition(".")[0])
        return library.find(fullname) if library is not None else None


_finder: Final = _Finder()


def add_sources(name: str, origin: str, payload: LibraryPayload) -> importlib.machinery.ModuleSpec | None:
    """Make a payload importable under a private name; returns the spec of its top module."""
    library = _Library(name, origin, payload)
    _finder.add(library)
    return library.find(name)


def remove_sources(name: str) -> None:
    """Make a payload's modules unimportable again; modules that are alive keep working."""
    _finder.remove(name)
