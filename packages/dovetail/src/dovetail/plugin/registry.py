"""Plugin registries: creators by name, version and namespace, plugin libraries, and resources that plugins share.

The registry of the process holds the creators that decorators, ``register_creator`` and C++ libraries register. Every
builder, runtime and engine has a child of it for the libraries that were loaded through it. A child is searched first
and then, unless that is switched off, its parent. All functions may be called from several threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from os import PathLike
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

from dovetail.errors import DovetailError, PluginError
from dovetail.loggers import ErrorCode, IErrorRecorder, ILogger, Logger, Severity
from dovetail.plugin._user_code import describe
from dovetail.plugin.adapters import resolve_creator, stands_for
from dovetail.plugin.creators import CreatorKey, bind_creator, explain_missing
from dovetail.plugin.interfaces import IPluginResource
from dovetail.plugin.resources import ResourceTable
from dovetail.types import EngineCapability

if TYPE_CHECKING:
    from dovetail.plugin.libraries import PluginLibrary
    from dovetail.plugin.native.loaded import LoadedLibraries, ProcessRegistration

__all__ = [
    "IPluginRegistry",
    "PluginRegistry",
    "collect_static_registrations",
    "get_builder_plugin_registry",
    "get_plugin_registry",
    "instantiate",
    "register_plugin",
    "register_statically",
]

C = TypeVar("C", bound=type)


class PluginRegistry:
    """Creators, plugin libraries and shared resources.

    Args:
        parent: Where a search goes on when nothing is found here.
        logger: Where plugin libraries log; without one, the parent's.

    >>> registry = PluginRegistry(parent=get_plugin_registry())
    >>> registry.find_creator("NoSuchPlugin", "1") is None
    True
    """

    def __init__(self, parent: PluginRegistry | None = None, *, logger: ILogger | None = None) -> None:
        self.parent: Final = parent
        self.parent_search_enabled = True
        """Whether a search that finds nothing here goes on in the parent."""
        self.error_recorder: IErrorRecorder | None = None
        """Where errors of this registry are recorded too, besides being raised."""
        self._logger = logger
        self._lock = threading.RLock()
        self._creators: dict[CreatorKey, Any] = {}
        self._libraries: list[PluginLibrary] = []
        self._resources = ResourceTable()

    def __repr__(self) -> str:
        own, found = len(self._own_keys()), len(self.creator_keys)
        parents = f", {found} with those of its parents" if found != own else ""
        return f"<{type(self).__name__} of {own} creator(s), libraries: {len(self.libraries)}{parents}>"

    # creators

    def register_creator(self, creator: Any, plugin_namespace: str = "") -> bool:
        """Add a creator; a second one of the same name, version and namespace is refused.

        Args:
            creator: An instance; it is kept alive, and its ``plugin_namespace`` is set. One of an older interface is
                kept as the adapter that it brings.
            plugin_namespace: Where to register it; without one, the creator's own namespace.
        """
        creator = resolve_creator(creator)
        self._refresh()
        with self._recording():
            key = bind_creator(creator, plugin_namespace)
            self._admit(creator)
            with self._lock:
                self._refuse_duplicate(key, creator)
                self._creators[key] = creator
                self._announce(creator, listed=True)
        return True

    def deregister_creator(self, creator: Any) -> bool:
        """Remove a creator; False when it is not registered here."""
        self._refresh()
        with self._lock:
            keys = [key for key, known in self._creators.items() if stands_for(known, creator)]
            for key in keys:
                self._announce(self._creators.pop(key), listed=False)
        self._refresh()  # a library that has no creators here may be unloaded
        return bool(keys)

    def find_creator(self, name: str, version: str, plugin_namespace: str = "") -> Any | None:
        """The creator, from here or from a parent, or None."""
        key = CreatorKey(name, version, plugin_namespace)
        for registry in self._search_path():
            registry._refresh()
            with registry._lock:
                creator = registry._creators.get(key)
            if creator is not None:
                return creator
        return None

    def get_creator(self, name: str, version: str, plugin_namespace: str = "") -> Any:
        """The creator, from here or from a parent; when there is none, the error lists the near names."""
        creator = self.find_creator(name, version, plugin_namespace)
        if creator is None:
            with self._recording(ErrorCode.INVALID_ARGUMENT):
                raise self._missing(CreatorKey(name, version, plugin_namespace))
        return creator

    @property
    def all_creators(self) -> list[Any]:
        """The creators registered here, in order."""
        self._refresh()
        with self._lock:
            return list(self._creators.values())

    @property
    def all_creators_recursive(self) -> list[Any]:
        """The creators registered here and in every parent that a search reaches."""
        return [creator for registry in self._search_path() for creator in registry.all_creators]

    @property
    def creator_keys(self) -> list[CreatorKey]:
        """Name, version and namespace of everything that a search from here finds."""
        return list(dict.fromkeys(key for registry in self._search_path() for key in registry._own_keys()))

    def _own_keys(self) -> list[CreatorKey]:
        self._refresh()
        with self._lock:
            return list(self._creators)

    def _search_path(self) -> Iterator[PluginRegistry]:
        registry: PluginRegistry | None = self
        while registry is not None:
            yield registry
            registry = registry.parent if registry.parent_search_enabled else None

    def _missing(self, wanted: CreatorKey) -> PluginError:
        parent = self.parent
        hidden = parent is not None and not self.parent_search_enabled and parent.find_creator(*wanted) is not None
        return explain_missing(wanted, self.creator_keys, hidden=hidden)

    def _admit(self, creator: Any) -> None:
        """What a stricter registry checks before it takes a creator; this one takes all."""

    def _refresh(self) -> None:
        """Read registrations that were made elsewhere; this registry has none."""

    def _announce(self, creator: Any, *, listed: bool) -> None:
        """Report a creator that was added or removed; this registry reports to none."""

    def _refuse_duplicate(self, key: CreatorKey, creator: Any) -> None:
        known = self._creators.get(key)
        if known is not None:
            raise PluginError(
                f"a creator for plugin {key} is already registered",
                where="plugin registry",
                expected=f"only {describe(known)}",
                got=f"also {describe(creator)}",
                fix="register it in another namespace or as another version, or deregister the first",
            )

    # resources

    def acquire_plugin_resource(self, key: str, resource: IPluginResource) -> IPluginResource:
        """The resource shared under a key: a clone of what the first caller passed; counts one more user."""
        with self._recording():
            return self._resources.acquire(key, resource)

    def release_plugin_resource(self, key: str) -> bool:
        """Count one user less; the last one releases the resource and removes the key."""
        with self._recording():
            self._resources.release(key)
        return True

    # libraries

    def load_library(self, plugin_path: str | PathLike[str]) -> PluginLibrary:
        """Import a plugin library and register all its creators, or none when one cannot be.

        The library's code runs with all rights of this process: load only what you trust.
        """
        from dovetail.plugin.libraries import load_library  # libraries know registries, so only this way round

        with self._recording(ErrorCode.FAILED_INITIALIZATION):
            return load_library(plugin_path, self)

    def load_entry_points(self, names: Iterable[str] | None = None) -> list[PluginLibrary]:
        """Import the plugin libraries that installed packages offer as ``dovetail.plugins``, and register them.

        Args:
            names: Which; without them, all that the loading policy allows.

        Raises:
            PluginError: A name is not offered or not allowed, or a library cannot be imported; those before it stay.
        """
        from dovetail.plugin.libraries import find_installed_libraries, load_installed_library

        with self._recording(ErrorCode.FAILED_INITIALIZATION):
            offers = find_installed_libraries(None if names is None else list(names))
            return [load_installed_library(offer, self) for offer in offers]

    def deregister_library(self, handle: PluginLibrary) -> bool:
        """Remove a library's creators and its modules; plugins that it made keep working."""
        with self._lock:
            if handle not in self._libraries:
                raise PluginError(
                    "the library is not loaded in this registry",
                    where="plugin registry",
                    expected=f"one of {[library.name for library in self._libraries]}",
                    got=getattr(handle, "name", type(handle).__name__),
                    fix="pass what load_library of the same registry returned, once",
                )
            self._libraries.remove(handle)
            for creator in handle.creators:
                self.deregister_creator(creator)
        handle.forget_modules()
        return True

    @property
    def libraries(self) -> list[PluginLibrary]:
        """The libraries loaded here, in order."""
        with self._lock:
            return list(self._libraries)

    def add_library(self, library: PluginLibrary) -> None:
        """Register all creators of an imported library, or none."""
        creators = {}
        for creator in library.creators:
            key = bind_creator(creator)
            if key in creators:
                raise PluginError(f"the library has two creators for plugin {key}", where=library.path)
            creators[key] = creator
            self._admit(creator)
        self._refresh()
        with self._lock:
            for key, creator in creators.items():
                self._refuse_duplicate(key, creator)
            self._creators.update(creators)
            self._libraries.append(library)
            for creator in creators.values():
                self._announce(creator, listed=True)

    # life

    @property
    def logger(self) -> ILogger:
        """Where this registry and its libraries log."""
        if self._logger is not None:
            return self._logger
        return self.parent.logger if self.parent is not None else _DEFAULT_LOGGER

    @logger.setter
    def logger(self, logger: ILogger | None) -> None:
        self._logger = logger

    def close(self) -> None:
        """Deregister everything and release resources that are still held; for registries that end with an engine."""
        for library in self.libraries:
            self.deregister_library(library)
        with self._lock:
            self._creators.clear()
        for key in self._resources.release_all():
            self.logger.log(Severity.WARNING, f"plugin resource '{key}' was never released by its users")

    @contextmanager
    def _recording(self, code: ErrorCode = ErrorCode.INVALID_ARGUMENT) -> Iterator[None]:
        """Tell the error recorder what is raised."""
        try:
            yield
        except DovetailError as error:
            if self.error_recorder is not None:
                self.error_recorder.report_error(code, str(error)[: IErrorRecorder.MAX_DESC_LENGTH])
            raise


IPluginRegistry = PluginRegistry
"""The contract's name for the registry."""

_DEFAULT_LOGGER: Final = Logger()


class ProcessRegistry(PluginRegistry):
    """A registry that shares its creators with the C++ libraries of the process.

    It has the creators that libraries register for the process, however they were loaded: with
    ``REGISTER_TENSORRT_PLUGIN``, or with ``getPluginRegistry()->registerCreator`` in a function of their own. C++
    creators that are registered here are found by ``getPluginRegistry()`` of every library.
    """

    _is_safe = False
    """Which registrations it has: those as safe, or all others."""

    def __init__(self) -> None:
        super().__init__()
        self._generation = -1
        self._found: set[tuple[int, str]] = set()
        """Registrations of libraries that are here because the library registered them itself."""
        self._reported: set[str] = set()

    def _refresh(self) -> None:
        loaded = _loaded_libraries()
        with self._lock:
            generation = loaded.refresh()
            while generation != self._generation:
                self._generation = generation
                self._synchronize(loaded)
                generation = loaded.refresh()  # refused registrations are reported

    def _synchronize(self, loaded: LoadedLibraries) -> None:
        wanted = {
            (each.entry.address, each.entry.namespace): each
            for each in loaded.registrations
            if each.entry.is_safe is self._is_safe
        }
        for problem in (*loaded.problems, *loaded.duplicates):
            self._report(problem)
        for key, creator in list(self._creators.items()):
            registration = getattr(creator, "registration", None)
            if registration is not None and registration not in wanted:
                del self._creators[key]
        present = {getattr(creator, "registration", None) for creator in self._creators.values()}
        self._found &= wanted.keys()
        for registration, each in wanted.items():
            if registration not in present:
                self._add_found(registration, each)

    def _add_found(self, registration: tuple[int, str], found: ProcessRegistration) -> None:
        from dovetail.plugin.native.creator import NativeCreator
        from dovetail.plugin.native.host import attach_host

        try:
            attach_host(found.image, self, again=False)
            entry = found.entry
            creator = NativeCreator(found.image, entry.address, entry.namespace, safe=entry.is_safe)
            key = bind_creator(creator)
            if key in self._creators:  # of Python, or of a library that registered it at the same time
                creator.refuse()
                return
            self._admit(creator)
        except DovetailError as error:
            self._report(str(error))
        else:
            self._creators[key] = creator
            self._found.add(registration)

    def _report(self, problem: str) -> None:
        """Log a problem once: the libraries are read again with every change of one of them."""
        if problem not in self._reported:
            self._reported.add(problem)
            self.logger.log(Severity.ERROR, problem)

    def _announce(self, creator: Any, *, listed: bool) -> None:
        registration = getattr(creator, "registration", None)
        if registration is not None:
            self._found.discard(registration)
            creator.publish(listed=listed)

    def _refuse_duplicate(self, key: CreatorKey, creator: Any) -> None:
        registration = getattr(creator, "registration", None)
        known = getattr(self._creators.get(key), "registration", None)
        if registration is None or registration != known or registration not in self._found:
            super()._refuse_duplicate(key, creator)


@cache
def _loaded_libraries() -> LoadedLibraries:
    from dovetail.plugin.native.loaded import LoadedLibraries  # needs ctypes, which `import dovetail` does not

    return LoadedLibraries()


_GLOBAL: Final = ProcessRegistry()


def get_plugin_registry() -> PluginRegistry:
    """Return the registry of the process: the parent of the registries of builders, runtimes and engines."""
    return _GLOBAL


def get_builder_plugin_registry(capability: EngineCapability) -> PluginRegistry | None:
    """The registry that builders for a capability use: the global one for STANDARD, none for the others."""
    return _GLOBAL if capability == EngineCapability.STANDARD else None


# While a library is imported, its static registrations belong to the library, and through it to the registry that
# loads it: a library carried in a plan must leave with its engine.
_collected: ContextVar[list[Any] | None] = ContextVar("_collected", default=None)


@contextmanager
def collect_static_registrations() -> Iterator[list[Any]]:
    """Gather what is registered statically in this context instead of putting it into the global registry."""
    creators: list[Any] = []
    token = _collected.set(creators)
    try:
        yield creators
    finally:
        _collected.reset(token)


def register_statically(creator: Any, namespace: str = "", registry: PluginRegistry = _GLOBAL) -> None:
    """Register a creator in a registry, or with the library that is being imported."""
    creators, creator = _collected.get(), resolve_creator(creator)
    if creators is None:
        registry.register_creator(creator, namespace)
    else:
        bind_creator(creator, namespace)
        creators.append(creator)


@overload
def register_plugin(creator_class: C) -> C: ...
@overload
def register_plugin(*, namespace: str = "") -> Callable[[C], C]: ...
def register_plugin(creator_class: C | None = None, *, namespace: str = "") -> C | Callable[[C], C]:
    """Decorate a creator class to have one instance of it registered in the global registry.

    In a plugin library that ``load_library`` imports, the instance goes to the registry that loads it.

        @register_plugin
        class PadCreator(dovetail.IPluginCreatorV3One): ...

        @register_plugin(namespace="acme")
        class CropCreator(dovetail.IPluginCreatorV3One): ...
    """

    def register(cls: C) -> C:
        register_statically(instantiate(cls), namespace)
        return cls

    return register if creator_class is None else register(creator_class)


def instantiate(cls: type) -> Any:
    """One creator of a class, made without arguments."""
    if not isinstance(cls, type):
        raise PluginError("register_plugin decorates a creator class", got=repr(cls)[:60])
    try:
        return cls()
    except TypeError as error:
        raise PluginError(
            f"the creator class {cls.__name__} cannot be made without arguments: {error}",
            fix="give __init__ defaults, or call get_plugin_registry().register_creator(instance)",
        ) from error
