"""How a host device is found: its factory, and one that is registered for as long as a block of code runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from dovetail._version import __version__
from dovetail.errors import ProviderError
from dovetail.provider.devices import Device
from dovetail.provider.loader import get_provider, register_provider, unregister_provider
from dovetail.testing.host_device import HostDevice
from dovetail.testing.host_options import HostDeviceOptions

__all__ = ["HostDeviceFactory", "host_device"]


class HostDeviceFactory:
    """Makes host devices; ``register_provider`` takes it."""

    version = __version__

    def __init__(self, options: HostDeviceOptions | None = None) -> None:
        self._options = options or HostDeviceOptions()

    @property
    def name(self) -> str:
        """The provider's name."""
        return self._options.name

    @property
    def api_version(self) -> int:
        """The version of the contract, unless another was asked for."""
        return self._options.api_version

    def devices(self) -> Sequence[Device]:
        """One, or as many as the options say."""
        self._check("devices")
        return [
            Device(name="host device", kind="npu", fingerprint="host-device", ordinal=ordinal)
            for ordinal in range(self._options.num_devices)
        ]

    def create(self, device: Device, options: Mapping[str, str]) -> HostDevice:
        """A device; options as texts go before those of the factory."""
        self._check("create")
        return HostDevice(device, self._options.updated(options))

    def _check(self, callback: str) -> None:
        if callback in self._options.raises_in:
            raise RuntimeError(f"told to fail in {callback}")


@contextmanager
def host_device(**options: Any) -> Iterator[HostDevice]:
    """Register a host device, give it, and take it back at the end.

    >>> with host_device(name="d", layout="NHWC") as device:
    ...     device.preferred_layout
    'NHWC'
    """
    factory = HostDeviceFactory(replace(HostDeviceOptions(), **options))
    register_provider(factory)
    try:
        provider = get_provider(factory.name)
        if not isinstance(provider, HostDevice):
            raise ProviderError("another provider has this name", where=f"provider '{factory.name}'")
        yield provider
    finally:
        unregister_provider(factory.name)
