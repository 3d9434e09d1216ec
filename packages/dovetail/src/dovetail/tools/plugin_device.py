"""A device of a provider for the plugin checker: memory, a stream for each thread, and copies from and to the host."""

from __future__ import annotations

import threading
from functools import cached_property

import numpy as np
import numpy.typing as npt

from dovetail.errors import UsageError
from dovetail.provider.calls import call
from dovetail.provider.devices import Stream
from dovetail.provider.interfaces import Provider
from dovetail.provider.loader import get_provider, require_provider
from dovetail.runtime.memory.blocks import DeviceBlock

__all__ = ["PluginDevice"]

Bytes = npt.NDArray[np.uint8]


class PluginDevice:
    """A device that plugins are checked on; see ``dovetail.plugin.check.host.device_memory``.

    The provider is made when the device is opened, which is after the checker has copied its process: a device that was
    used before would not work in the copy.

    Args:
        provider_id: The name of a provider, or its name and the ordinal of a device, such as ``gpu:1``.

    Raises:
        ProviderError: There is no provider of that name.
    """

    def __init__(self, provider_id: str) -> None:
        require_provider(provider_id)
        self.id = provider_id
        self._streams = threading.local()

    def open(self) -> None:
        """Make the provider.

        Raises:
            DovetailError: It finds no such device, or its memory is the host's.
        """
        if self.provider.memory.is_host:
            raise UsageError(
                "its memory is the host's, where plugins are checked anyway",
                where=f"provider '{self.id}'",
                fix="leave --provider out, or name a provider of a device",
            )

    @cached_property
    def provider(self) -> Provider:
        """The provider of the device."""
        return get_provider(self.id)

    def allocate(self, size_bytes: int) -> PluginBytes:
        """New memory, which goes back when nobody has it."""
        return PluginBytes(self, size_bytes)

    def find_stream(self) -> Stream | None:
        """The stream of this thread; None for a device that has none."""
        if not hasattr(self._streams, "own"):
            self._streams.own = call(self.id, "create_stream", self.provider.create_stream)
        own: Stream | None = self._streams.own
        return own

    @property
    def stream(self) -> int:
        """What plugins get as their stream in this thread."""
        stream = self.find_stream()
        return 0 if stream is None else stream.handle

    def wait(self) -> None:
        """Wait for the stream of this thread, and for nothing else: a plugin may use no other."""
        stream = self.find_stream()
        if stream is None:
            call(self.id, "synchronize", self.provider.synchronize)
        else:
            call(self.id, "synchronize", stream.synchronize)


class PluginBytes:
    """A block of the device's memory."""

    def __init__(self, device: PluginDevice, size_bytes: int) -> None:
        self._device = device
        self._block = DeviceBlock(device.provider, size_bytes)

    @property
    def address(self) -> int:
        """Where it begins."""
        return self._block.address

    def write(self, source: Bytes, offset: int) -> None:
        """Copy bytes of the host to a place in it."""
        self._copy(source, self._block.view(offset, source.shape, source.dtype))

    def read(self, target: Bytes, offset: int) -> None:
        """Copy from a place in it to the host."""
        self._copy(self._block.view(offset, target.shape, target.dtype), target)

    def _copy(self, source: object, target: object) -> None:
        device = self._device
        call(device.id, "copy", device.provider.copy, source, target, device.find_stream())
        device.wait()
