"""Plugin libraries: a Python file or package or a C++ library that brings creators, loaded from disk or out of a plan.

A Python library has ``get_creators()``, which returns a list of creators, or registers them with decorators while it is
imported; it may have ``set_logger_finder(finder)``. It is imported under a name of its own, so it neither replaces nor
becomes a module that others import, and two registries can load the same file. Inside a package use relative imports.
Importing a library runs its code with all rights of this process.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import itertools
import sys
import threading
import traceback
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from os import PathLike, fspath
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from dovetail.entry_points import PLUGIN_GROUP, Offer, find_offers, loading_policy
from dovetail.errors import DovetailError, PluginError
from dovetail.loggers import ILogger, ILoggerFinder, Severity
from dovetail.near_names import find_near
from dovetail.plugin.adapters import resolve_creator
from dovetail.plugin.carried.memory_import import PREFIX, add_sources, remove_sources
from dovetail.plugin.carried.payload import NativePayload, decode_payload, is_native, pack_library
from dovetail.plugin.creators import bind_creator
from dovetail.plugin.registry import PluginRegistry, collect_static_registrations
from dovetail.stand_ins import advise_missing, with_stand_ins

__all__ = [
    "PluginLibrary",
    "find_installed_libraries",
    "load_installed_library",
    "load_library",
    "load_native_library",
    "load_packed_library",
    "load_python_library",
    "pack_library",
]

_numbers: Final = itertools.count(1)
_numbers_lock: Final = threading.Lock()


@dataclass(frozen=True, eq=False)
class PluginLibrary:
    """A loaded library: the handle that ``deregister_library`` takes."""

    name: str
    """What the library is called: the name of its file or folder."""
    path: str
    """Where it came from."""
    creators: tuple[Any, ...]
    """Its creators, registered together."""
    module_name: str
    """The private name it is imported under."""
    forget_modules: Callable[[], object] = field(repr=False)
    """Takes the library's modules out of the interpreter's table; happens by itself when the registry is gone."""


class RegistryLoggerFinder(ILoggerFinder):
    """Gives a library the logger of the registry that loaded it."""

    def __init__(self, registry: PluginRegistry) -> None:
        self._registry = registry

    def find_logger(self) -> ILogger:
        """The logger in use now."""
        return self._registry.logger


def load_library(path: str | PathLike[str], registry: PluginRegistry) -> PluginLibrary:
    """Import the library at a path and register its creators in a registry, all or none."""
    location = Path(fspath(path))
    return _loader_for(location)(location, registry)


def _loader_for(path: Path) -> Callable[[Path, PluginRegistry], PluginLibrary]:
    """Which kind of library this is."""
    if path.is_dir() or path.suffix == ".py":
        return load_python_library
    if is_native(path):
        return load_native_library
    raise PluginError(
        "the path is not a plugin library",
        where=str(path),
        expected="a Python file (.py), a package folder or a shared library (.so)",
    )


def load_native_library(path: str | PathLike[str], registry: PluginRegistry) -> PluginLibrary:
    """Load a C++ library that was built against Dovetail's headers and register its creators, all or none."""
    from dovetail.plugin.native.loader import load_native_creators  # most processes load no such library

    location = Path(fspath(path)).resolve()
    creators = load_native_creators(location, registry)
    library = PluginLibrary(location.stem, str(location), creators, "", lambda: None)
    registry.add_library(library)
    return library


def load_python_library(path: str | PathLike[str], registry: PluginRegistry) -> PluginLibrary:
    """Import a Python file or package folder and register its creators, all or none."""
    location = Path(fspath(path)).resolve()
    entry = location / "__init__.py" if location.is_dir() else location
    if not entry.is_file():
        raise PluginError("there is no such plugin library", where=str(entry), fix="check the path")
    name = _private_name(location.stem)
    folders = [str(location)] if location.is_dir() else None
    spec = importlib.util.spec_from_file_location(name, entry, submodule_search_locations=folders)
    return _load(spec, location.stem, str(location), registry)


def load_packed_library(name: str, payload: bytes, registry: PluginRegistry) -> PluginLibrary:
    """Import or open a library that ``pack_library`` wrote and register its creators, all or none.

    Nothing is written to disk. The caller has decided that this code may run.

    Args:
        name: What to call it in messages and tracebacks.
        payload: The bytes.
        registry: Where its creators go.
    """
    origin = f"<plugin library {name}>"
    library = decode_payload(payload, where=origin)
    if isinstance(library, NativePayload):
        return _load_carried(name, library.data, origin, registry)
    module_name = _private_name(name)
    spec = add_sources(module_name, origin, library)
    return _load(spec, name, origin, registry)


def _load_carried(name: str, data: bytes, origin: str, registry: PluginRegistry) -> PluginLibrary:
    from dovetail.plugin.native.carried import open_carried_image  # most processes load no such library
    from dovetail.plugin.native.loader import gather_native_creators

    creators = gather_native_creators(open_carried_image(name, data), registry)
    library = PluginLibrary(name, origin, creators, "", lambda: None)
    registry.add_library(library)
    return library


def find_installed_libraries(names: Sequence[str] | None = None) -> list[Offer]:
    """The plugin libraries that installed packages offer, without importing them.

    Args:
        names: Which; without them, all that the loading policy allows.

    Raises:
        PluginError: A name is not offered, is offered twice, or is not allowed.
    """
    offers, policy = find_offers(PLUGIN_GROUP), loading_policy()
    if names is None:
        return [offer for offer in offers if policy.refusal(PLUGIN_GROUP, offer.name) is None]
    return [_choose_offer(name, offers) for name in dict.fromkeys(names)]


def _choose_offer(name: str, offers: Sequence[Offer]) -> Offer:
    refusal = loading_policy().refusal(PLUGIN_GROUP, name)
    if refusal is not None:
        raise PluginError(f"the plugin library may not be imported: {refusal}", where=f"plugin library '{name}'")
    found = [offer for offer in offers if offer.name == name]
    if len(found) != 1:
        known = sorted({offer.name for offer in offers})
        raise PluginError(
            "several packages offer it" if found else "no installed package offers it",
            where=f"plugin library '{name}'",
            expected="one of " + ", ".join(find_near(name, known) or known or ["none"]),
            got=", ".join(offer.origin for offer in found) or None,
            fix="uninstall all but one"
            if found
            else f"install the package that has it, as an entry point {PLUGIN_GROUP}",
        )
    return found[0]


_static_creators: Final[dict[str, list[Any]]] = {}


def load_installed_library(offer: Offer, registry: PluginRegistry) -> PluginLibrary:
    """Import the module that an entry point names, as any import does, and register its creators, all or none."""
    where = f"plugin library '{offer.name}' of {offer.origin}"
    if offer.module is None or offer.attribute is not None:
        raise PluginError("the entry point names no module", where=where, expected="module", got=offer.target)
    with _attributing(where), collect_static_registrations() as static:
        module = importlib.import_module(offer.module)
        # A module is imported once: what its decorators gave then is what another registry gets too.
        kept = _static_creators.setdefault(offer.module, static)
        creators = _gather_creators(module, kept, where, registry)
    library = PluginLibrary(offer.name, where, creators, offer.module, lambda: None)
    registry.add_library(library)
    return library


def _private_name(stem: str) -> str:
    readable = "".join(c if c.isalnum() and c.isascii() else "_" for c in stem)
    with _numbers_lock:  # a counter is not atomic without the interpreter lock, and two libraries of one name clash
        return f"{PREFIX}{next(_numbers)}_{readable}"


def _load(spec: importlib.machinery.ModuleSpec | None, name: str, path: str, registry: PluginRegistry) -> PluginLibrary:
    if spec is None or spec.loader is None:
        raise PluginError("the file cannot be imported as Python", where=path)
    forget = weakref.finalize(registry, _forget_modules, spec.name)
    forget.atexit = False
    try:
        with _attributing(path), collect_static_registrations() as static:
            module = _import(spec)
            creators = _gather_creators(module, static, path, registry)
        library = PluginLibrary(name, path, creators, spec.name, forget)
        registry.add_library(library)
    except BaseException:
        forget()
        raise
    else:
        return library


def _import(spec: importlib.machinery.ModuleSpec) -> ModuleType:
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    loader = spec.loader
    assert loader is not None  # noqa: S101 - checked by the caller
    with_stand_ins(lambda: loader.exec_module(module))
    return module


def _forget_modules(name: str) -> None:
    # Listed in one go: other threads import meanwhile.
    for module in [m for m in list(sys.modules) if m == name or m.startswith(f"{name}.")]:
        sys.modules.pop(module, None)
    remove_sources(name)


def _gather_creators(module: ModuleType, static: list[Any], path: str, registry: PluginRegistry) -> tuple[Any, ...]:
    set_logger_finder = getattr(module, "set_logger_finder", None)
    if callable(set_logger_finder):
        set_logger_finder(RegistryLoggerFinder(registry))
    entry = _entry_point(module, path, registry)
    if entry is None and not static:
        raise PluginError(
            "the library brings no creators",
            where=path,
            expected="a function get_creators(), or creators registered with decorators",
            fix="def get_creators(): return [MyCreator()]",
        )
    declared = _declared_creators(entry, path) if entry is not None else []
    # A creator that is registered by a decorator and also returned by get_creators() was meant once.
    known = {(type(creator), bind_creator(creator)) for creator in declared}
    return (*declared, *(creator for creator in static if (type(creator), bind_creator(creator)) not in known))


def _entry_point(module: ModuleType, path: str, registry: PluginRegistry) -> Callable[[], Any] | None:
    entry = getattr(module, "get_creators", None)
    if entry is None:
        entry = getattr(module, "get_plugin_creators", None)
        if entry is not None:
            registry.logger.log(Severity.WARNING, f"{path}: get_plugin_creators is an old name, use get_creators")
    if entry is not None and not callable(entry):
        raise PluginError("get_creators is not a function", where=path, got=type(entry).__name__)
    return entry


def _declared_creators(entry: Callable[[], Any], path: str) -> list[Any]:
    creators = entry()
    if isinstance(creators, str | bytes) or not isinstance(creators, Iterable):
        raise PluginError(
            "get_creators() returned no list", where=path, expected="a list of creators", got=type(creators).__name__
        )
    return [resolve_creator(creator) for creator in creators]


@contextmanager
def _attributing(path: str) -> Iterator[None]:
    """Turn whatever a library raises while it is imported into an error that names its file and line."""
    try:
        yield
    except DovetailError:
        raise
    except (Exception, SystemExit) as error:
        raise PluginError(
            f"the library raised {type(error).__name__}: {error}",
            where=_place_in(path, error),
            fix=_advice(path, error),
        ) from error


def _place_in(path: str, error: BaseException) -> str:
    if isinstance(error, SyntaxError) and error.filename is not None:
        return f"{error.filename}:{error.lineno}"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(path)]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else path


def _advice(path: str, error: BaseException) -> str | None:
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return None
    top = error.name.partition(".")[0]
    location = Path(path)
    folder = location if location.is_dir() else location.parent
    if top == location.stem or (folder / f"{top}.py").exists() or (folder / top).is_dir():
        return f"make the library a package folder and import '{top}' relatively: from . import {top}"
    return advise_missing(error)
