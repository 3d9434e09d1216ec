"""The lifetime of one C++ plugin object."""

from __future__ import annotations

from collections import deque
from typing import Final

from dovetail.errors import PluginError
from dovetail.plugin.native.image import NativeImage
from dovetail.plugin.native.resource import NativeContext

__all__ = ["NativeObject"]


class NativeObject:
    """A C++ plugin object, deleted once: when it is released and no call of it runs in any thread.

    Args:
        image: The library that made it.
        address: The object.
        name: The plugin's name, for messages.
    """

    __slots__ = ("_address", "_calls", "_deletions", "_is_released", "contexts", "image", "name")

    def __init__(self, image: NativeImage, address: int, name: str) -> None:
        self.image: Final = image
        self.name: Final = name
        self.contexts: Final[list[NativeContext]] = []
        """The contexts that it is attached to."""
        self._address: Final = address
        # Queues, because their methods are atomic; a call that was counted allocates nothing.
        self._calls: Final[deque[None]] = deque()
        self._deletions: Final[deque[None]] = deque([None])
        self._is_released = False

    def begin_call(self, callback: str) -> None:
        """Count a call, which ``end_call`` ends, unless the object is released.

        Raises:
            PluginError: The object is released.
        """
        self._calls.append(None)  # before the check, so that `release` sees the call or the call sees the release
        if self._is_released:
            self.end_call()
            where = f"C++ plugin '{self.name}' of {self.image.path}"
            raise PluginError(f"{callback} was called after the plugin was destroyed", where=where)

    def end_call(self) -> None:
        """End a call; the last one deletes an object that was released meanwhile."""
        self._calls.pop()
        if self._is_released and not self._calls:
            try:
                self._delete()
            except PluginError as error:
                self.image.log_error(error)

    def release(self) -> None:
        """Delete the object, now or at the end of the last call that runs.

        Raises:
            PluginError: A V2 plugin's ``detachFromContext``, ``terminate`` or ``destroy`` threw an exception.
        """
        self._is_released = True
        if not self._calls:
            self._delete()

    def _delete(self) -> None:
        try:
            self._deletions.pop()
        except IndexError:
            return  # another thread deletes it
        try:
            self.image.call("plugin_delete", "destroying", self._address, owner=self.name)
        finally:
            for context in self.contexts:
                context.close()
