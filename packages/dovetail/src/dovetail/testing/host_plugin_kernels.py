"""Kernels that plugins bring, on the host device: functions that a test gave it, by their names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from dovetail.errors import ProviderError
from dovetail.provider.interfaces import DeviceKernel, LaunchShape

if TYPE_CHECKING:
    from dovetail.testing.host_device import HostDevice

__all__ = ["HostDeviceKernel", "PluginFunction"]

PluginFunction = Callable[[LaunchShape, Sequence[int]], None]
"""What a kernel does: with the shape of its launch, over addresses and integers."""


class HostDeviceKernel(DeviceKernel):
    """One kernel of a plugin; its work is done when somebody waits for it."""

    def __init__(self, device: HostDevice, name: str) -> None:
        self._device, self._name = device, name
        if name not in device.plugin_functions:
            raise ProviderError(f"there is no kernel {name!a}", where=f"provider '{device.id}'")

    def launch(self, shape: LaunchShape, parameters: Sequence[int], stream: int) -> None:
        """Put it on a stream."""
        function, given = self._device.plugin_functions[self._name], list(parameters)
        self._device.find_stream(stream).submit(self._name, lambda: function(shape, given))
