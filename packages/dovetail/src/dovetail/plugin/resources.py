"""Resources that plugins share under a key: cloned on first use, counted, released when the last user lets go."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NoReturn

from dovetail.errors import DovetailError, PluginError
from dovetail.plugin._user_code import describe
from dovetail.plugin.interfaces import IPluginResource

__all__ = ["ResourceTable"]


class _ResourceEntry:
    """One key: its resource once cloned, its users, and the lock that makes threads clone and release once."""

    __slots__ = ("count", "is_busy", "is_gone", "lock", "resource")

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.resource: IPluginResource | None = None
        self.count = 0
        self.is_busy = False
        self.is_gone = False


class ResourceTable:
    """The shared resources of one registry; every method may be called from several threads.

    ``clone()`` and ``release()`` run under the lock of their key alone, so a slow one holds up nobody else. A
    ``clone()`` may acquire other keys, but two that acquire each other's deadlock, as any two locks would.
    """

    def __init__(self) -> None:
        # Reentrant: the garbage collector may destroy a plugin, which releases its resource, in the very thread that is
        # inside one of these short sections.
        self._lock = threading.RLock()
        self._entries: dict[str, _ResourceEntry] = {}

    def acquire(self, key: str, resource: IPluginResource) -> IPluginResource:
        """The resource under a key, with one more user; the first call clones what it is given."""
        _check_key(key)
        while True:
            entry = self._entry(key)
            with entry.lock:
                if entry.is_gone:
                    continue  # another thread failed to clone it or released it meanwhile
                _refuse_reentry(key, entry, resource)
                if entry.resource is None:
                    entry.resource = self._clone_into(key, entry, resource)
                entry.count += 1
                return entry.resource

    def release(self, key: str) -> None:
        """Take one user away; the last one releases the resource and removes the key."""
        with self._lock:
            entry = self._entries.get(key)
        if entry is None:
            self._refuse_unknown(key)
        with entry.lock:
            if entry.is_gone or entry.resource is None:
                self._refuse_unknown(key)
            entry.count -= 1
            if not entry.count:
                self._release_last(key, entry, entry.resource)

    def release_all(self) -> list[str]:
        """Release what is left whatever its count; returns the keys that were still in use."""
        with self._lock:
            leftovers = list(self._entries.items())
        for key, entry in leftovers:
            with entry.lock:
                if entry.resource is not None and not entry.is_gone:
                    self._release_last(key, entry, entry.resource)
        return [key for key, _ in leftovers]

    def count_of(self, key: str) -> int:
        """How many users a key has; 0 when it is not registered."""
        with self._lock:
            entry = self._entries.get(key)
        return entry.count if entry is not None else 0

    def _entry(self, key: str) -> _ResourceEntry:
        with self._lock:
            return self._entries.setdefault(key, _ResourceEntry())

    def _remove(self, key: str, entry: _ResourceEntry) -> None:
        entry.is_gone = True
        with self._lock:
            if self._entries.get(key) is entry:
                del self._entries[key]

    def _clone_into(self, key: str, entry: _ResourceEntry, resource: IPluginResource) -> IPluginResource:
        entry.is_busy = True
        try:
            return _clone(key, resource)
        except BaseException:
            self._remove(key, entry)
            raise
        finally:
            entry.is_busy = False

    def _release_last(self, key: str, entry: _ResourceEntry, resource: IPluginResource) -> None:
        # The key goes after release(), so that whoever acquires it anew does not clone while the old one still works.
        entry.is_busy = True
        try:
            _release(key, resource)
        finally:
            entry.is_busy = False
            self._remove(key, entry)

    def _refuse_unknown(self, key: str) -> NoReturn:
        with self._lock:
            known = ", ".join(f"'{name}'" for name in sorted(self._entries)) or "none"
        raise PluginError(
            f"no plugin resource is registered under '{key}'",
            where="plugin registry",
            expected=f"one of the keys in use: {known}",
            fix="release a key once for each acquire, and not after the last release",
        )


def _check_key(key: object) -> None:
    if not isinstance(key, str) or not key:
        raise PluginError("a resource key must be a non-empty string", where="plugin registry", got=repr(key)[:60])


def _refuse_reentry(key: str, entry: _ResourceEntry, resource: IPluginResource) -> None:
    if entry.is_busy:  # the lock is held, so this is the very thread that is cloning or releasing
        raise PluginError(
            f"clone() or release() of the resource under '{key}' acquires its own key",
            where=describe(resource),
            fix="initialise and free without going through the registry",
        )


def _clone(key: str, resource: IPluginResource) -> IPluginResource:
    clone = getattr(resource, "clone", None)
    if not callable(clone) or isinstance(resource, type):
        raise PluginError(
            f"the resource for '{key}' cannot be cloned",
            got=describe(resource) if not isinstance(resource, type) else f"the class {resource.__name__}",
            fix="pass an instance of a class derived from dovetail.IPluginResource",
        )
    twin: IPluginResource | None = _attributed(key, resource, "clone", clone)
    if twin is None or not callable(getattr(twin, "release", None)):
        raise PluginError(
            f"clone() of the resource for '{key}' returned no resource",
            where=describe(resource),
            got=type(twin).__name__,
            fix="return an initialised object with clone() and release()",
        )
    return twin


def _release(key: str, resource: IPluginResource) -> None:
    status = _attributed(key, resource, "release", resource.release)
    if status is not None and status != 0:
        raise PluginError(
            f"release() of the resource under '{key}' failed",
            where=describe(resource),
            expected="0 or None",
            got=repr(status)[:60],
        )


def _attributed(key: str, resource: IPluginResource, method: str, call: Callable[[], Any]) -> Any:
    """Call user code and turn what it raises into an error that names it."""
    try:
        return call()
    except DovetailError:
        raise
    except Exception as error:
        raise PluginError(
            f"{method}() of the resource under '{key}' raised {type(error).__name__}: {error}",
            where=describe(resource),
        ) from error
