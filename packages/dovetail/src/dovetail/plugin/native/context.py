"""The resource context of an attached C++ plugin: its C++ half, and the way from there to the execution context."""

from __future__ import annotations

import ctypes
import itertools
import threading
from typing import Final

from dovetail.errors import PluginError
from dovetail.plugin.interfaces import IPluginResourceContext
from dovetail.plugin.native.image import NativeImage

__all__ = ["NativeContext", "find_context"]

_tokens: Final = itertools.count(1)
_contexts: Final[dict[int, IPluginResourceContext]] = {}
_lock: Final = threading.Lock()


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
