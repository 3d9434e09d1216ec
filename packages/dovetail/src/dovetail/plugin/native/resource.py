"""Resources of C++ plugins: shared ones of the registry, and the contexts that plugins are attached to."""

from __future__ import annotations

import ctypes
import itertools
import threading
from typing import Final

from dovetail.errors import PluginError
from dovetail.finalizers import finalize
from dovetail.plugin.interfaces import APILanguage, IPluginResource, IPluginResourceContext
from dovetail.plugin.native.image import NativeImage

__all__ = ["NativeContext", "NativeResource", "find_context"]

_tokens: Final = itertools.count(1)
_contexts: Final[dict[int, IPluginResourceContext]] = {}
_lock: Final = threading.Lock()


class NativeResource(IPluginResource):
    """One C++ object; a clone that was made here is deleted with it.

    Args:
        image: The library that the object comes from.
        address: The object.
        owned: Whether to delete it.
    """

    api_language = APILanguage.CPP

    def __init__(self, image: NativeImage, address: int, *, owned: bool) -> None:
        self.image: Final = image
        self.address: Final = address
        if owned:
            finalize(self, image.call, "resource_delete", "deleting", address)

    def clone(self) -> NativeResource:
        """A clone, owned."""
        twin = ctypes.c_void_p()
        self.image.call("resource_clone", "IPluginResource::clone", self.address, ctypes.byref(twin))
        if not twin.value:
            raise PluginError("IPluginResource::clone returned null", where=self.image.path)
        return NativeResource(self.image, twin.value, owned=True)

    def release(self) -> int:
        """The status that the object returns."""
        status = ctypes.c_int32()
        self.image.call("resource_release", "IPluginResource::release", self.address, ctypes.byref(status))
        return status.value


class NativeContext:
    """One C++ context, to be closed after the plugins that are attached to it are deleted."""

    def __init__(self, image: NativeImage, context: IPluginResourceContext) -> None:
        self._image: Final = image
        with _lock:
            self._token: Final = next(_tokens)
            _contexts[self._token] = context
        made = ctypes.c_void_p()
        image.call("context_create", "attaching", self._token, ctypes.byref(made))
        self.address: Final = made.value

    def close(self) -> None:
        """Delete the C++ half and let go of the execution context."""
        self._image.call("context_delete", "detaching", self.address)
        with _lock:
            del _contexts[self._token]


def find_context(token: int) -> IPluginResourceContext:
    """The execution context that a C++ context belongs to."""
    with _lock:
        context = _contexts.get(token)
    if context is None:
        raise PluginError("a C++ plugin used a context after it was deleted")
    return context
