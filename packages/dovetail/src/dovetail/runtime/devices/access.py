"""Checks that an address which a caller binds is in the kind of memory that its tensor is in.

A kernel that reads host memory, and a host step that reads device memory, end the process. Providers know the kind of
memory at an address, so the check is made when an address is bound, and not in runs over the same addresses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dovetail.errors import InputError
from dovetail.provider.calls import call
from dovetail.provider.devices import MemoryAccess
from dovetail.provider.interfaces import Provider
from dovetail.provider.options import Providers

__all__ = ["AddressCheck", "check_device_address", "check_host_address", "make_address_check"]

AddressCheck = Callable[[str, int, str], None]
"""Called with a provider's id (empty for host memory), an address, and the name of the tensor for an error."""


def make_address_check(providers: Providers, devices: Sequence[str]) -> AddressCheck | None:
    """Return the check for an engine; None for an engine on the host only, whose callers bind host memory.

    Args:
        providers: The providers of the engine.
        devices: Ids of the providers that have memory of their own.
    """
    if not devices:
        return None
    found = {name: providers[name] for name in devices}

    def check(memory: str, address: int, where: str) -> None:
        if memory:
            check_device_address(found.get(memory) or providers[memory], address, where)
        else:
            check_host_address(list(found.values()), address, where)

    return check


def check_device_address(provider: Provider, address: int, where: str) -> None:
    """Raise unless a device can use the memory at an address; null passes, and so does memory of an unknown kind.

    Args:
        provider: The provider of the device.
        address: The address that the caller binds.
        where: The tensor, for the error.

    Raises:
        InputError: The address is in host memory.
    """
    access = _find_access(provider, address)
    if access is not None and MemoryAccess.DEVICE not in access:
        raise _wrong_memory(f"memory of '{provider.id}'", f"{address:#x} in host memory", where)


def check_host_address(devices: Sequence[Provider], address: int, where: str) -> None:
    """Raise if the memory at an address is a device's and the host cannot use it.

    Args:
        devices: The providers of the devices.
        address: The address that the caller binds.
        where: The tensor, for the error.

    Raises:
        InputError: The address is in memory of a device.
    """
    for provider in devices:
        access = _find_access(provider, address)
        if access is not None and MemoryAccess.HOST not in access:
            raise _wrong_memory("host memory", f"{address:#x} in memory of '{provider.id}'", where)


def _find_access(provider: Provider, address: int) -> MemoryAccess | None:
    return call(provider.id, "find_access", provider.find_access, address) if address else None


def _wrong_memory(expected: str, got: str, where: str) -> InputError:
    return InputError(
        "an address in the wrong kind of memory",
        where=where,
        expected=expected,
        got=got,
        fix="bind memory of the kind that get_tensor_location and get_tensor_memory report",
    )
