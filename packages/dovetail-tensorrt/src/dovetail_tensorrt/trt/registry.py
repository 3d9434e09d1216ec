"""The plugin registry, with None and False for what is absent or refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import dovetail
from dovetail import StrictAttributes
from dovetail_tensorrt.trt.answers import Reporter
from dovetail_tensorrt.trt.parts import import_part

__all__ = [
    "IPluginRegistry",
    "get_builder_plugin_registry",
    "get_plugin_registry",
    "init_libnvinfer_plugins",
]


class IPluginRegistry(StrictAttributes):
    """Creators, plugin libraries and shared resources; see ``dovetail.PluginRegistry``.

    Args:
        registry: The engine's own registry.
        reporter: Who is told of what fails.
    """

    __slots__ = ("_reporter", "registry")

    def __init__(self, registry: dovetail.PluginRegistry, reporter: Reporter) -> None:
        self.registry = registry
        self._reporter = reporter

    @property
    def error_recorder(self) -> dovetail.IErrorRecorder | None:
        """Where errors are recorded too."""
        return self._reporter.recorder

    @error_recorder.setter
    def error_recorder(self, recorder: dovetail.IErrorRecorder | None) -> None:
        self._reporter.recorder = recorder

    @property
    def parent_search_enabled(self) -> bool:
        """Whether a search that finds nothing here goes on in the parent."""
        return self.registry.parent_search_enabled

    @parent_search_enabled.setter
    def parent_search_enabled(self, value: bool) -> None:
        self.registry.parent_search_enabled = bool(value)

    def register_creator(self, creator: Any, plugin_namespace: str = "") -> bool:
        """Add a creator of V3 or V2 plugins; False when one of its name, version and namespace is there."""

        def register() -> bool:
            return self.registry.register_creator(_adapt(creator), plugin_namespace)

        return self._reporter.attempt("IPluginRegistry.register_creator", register, failure=False)

    def deregister_creator(self, creator: Any) -> bool:
        """Remove a creator; False when it is not registered here."""
        known = next((each for each in self.registry.all_creators if _original(each) is creator), creator)
        return self.registry.deregister_creator(known)

    def get_creator(self, type: str, version: str, plugin_namespace: str = "") -> Any | None:  # noqa: A002
        """The creator, from here or from a parent, or None."""
        return _original(self.registry.find_creator(type, version, plugin_namespace))

    @property
    def all_creators(self) -> list[Any]:
        """The creators registered here."""
        return [_original(creator) for creator in self.registry.all_creators]

    @property
    def all_creators_recursive(self) -> list[Any]:
        """The creators registered here and in every parent that a search reaches."""
        return [_original(creator) for creator in self.registry.all_creators_recursive]

    @property
    def plugin_creator_list(self) -> list[Any]:
        """The same as ``all_creators``; version 10's name."""
        return self.all_creators

    def get_plugin_creator(self, type: str, version: str, plugin_namespace: str = "") -> Any | None:  # noqa: A002
        """The same as ``get_creator``; version 10's name."""
        return self.get_creator(type, version, plugin_namespace)

    def load_library(self, plugin_path: str) -> Any | None:
        """Import a plugin library and register its creators; a handle, or None."""
        return self._reporter.attempt(
            "IPluginRegistry.load_library", lambda: self.registry.load_library(plugin_path), None
        )

    def deregister_library(self, handle: Any) -> None:
        """Remove a library's creators."""
        self._reporter.attempt(
            "IPluginRegistry.deregister_library", lambda: self.registry.deregister_library(handle), None
        )

    def acquire_plugin_resource(self, key: str, resource: Any) -> Any | None:
        """The resource shared under a key, or None."""
        return self._reporter.attempt(
            "IPluginRegistry.acquire_plugin_resource",
            lambda: self.registry.acquire_plugin_resource(key, resource),
            None,
        )

    def release_plugin_resource(self, key: str) -> bool:
        """Count one user of a resource less."""
        return self._reporter.attempt(
            "IPluginRegistry.release_plugin_resource",
            lambda: self.registry.release_plugin_resource(key),
            failure=False,
        )

    def __iter__(self) -> Iterator[Any]:
        return iter(self.all_creators)


def _adapt(creator: Any) -> Any:
    """A creator of V2 plugins as one of V3 plugins; every other as it is."""
    is_v2 = hasattr(creator, "deserialize_plugin") and not isinstance(creator, dovetail.IPluginCreatorV3One)
    return import_part("v2").adapt_creator(creator) if is_v2 else creator


def _original(creator: Any) -> Any:
    """The creator that a script registered: the one behind an adapter."""
    return getattr(creator, "adapted", creator)


_global = IPluginRegistry(dovetail.get_plugin_registry(), Reporter(None))


def get_plugin_registry() -> IPluginRegistry:
    """The global registry."""
    return _global


def get_builder_plugin_registry(capability: dovetail.EngineCapability) -> IPluginRegistry | None:
    """The global registry for STANDARD, and None for the others."""
    return _global if capability == dovetail.EngineCapability.STANDARD else None


def init_libnvinfer_plugins(logger: dovetail.ILogger | None = None, namespace: str = "") -> bool:
    """Register the built-in plugins, once a namespace; True, also when they are there already."""
    reporter = Reporter(logger)

    def register() -> bool:
        return bool(import_part("builtin").register_all(dovetail.get_plugin_registry(), namespace))

    return reporter.attempt("init_libnvinfer_plugins", register, failure=False)
