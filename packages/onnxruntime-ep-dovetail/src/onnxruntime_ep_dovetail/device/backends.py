"""Dovetail's back ends as the devices of the execution provider: the CPU, and every provider with memory of its own.

Which ones there are is found out when the library is registered. A device of ONNX Runtime stands for one back end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from dovetail import ProviderError, UsageError
from dovetail.provider.interfaces import Provider
from dovetail.provider.loader import get_factory, get_provider, list_providers
from onnxruntime_ep_dovetail.session.options import EpOptions

__all__ = ["CPU_BACKEND", "Backend", "choose_backend", "find_backends"]

_HOST: Final = "cpu"
_NOT_DEVICES: Final = frozenset((_HOST, "onnxruntime"))
"""Providers of the host; ONNX Runtime inside ONNX Runtime would be sessions inside sessions."""


@dataclass(frozen=True, kw_only=True)
class Backend:
    """Where partitions run."""

    name: str
    """Of the provider in Dovetail, with the ordinal of a further device: ``gpu`` or ``gpu:1``."""
    is_given: bool = True
    """Whether ONNX Runtime gave the session the device of this back end, and keeps the session's values there."""

    @property
    def is_device(self) -> bool:
        """Whether it has memory of its own."""
        return self.name != _HOST

    @property
    def has_device_memory(self) -> bool:
        """Whether the session's values lie in memory of the back end; else its engines copy them there and back."""
        return self.is_device and self.is_given

    @property
    def provider(self) -> Provider:
        """The provider itself."""
        return get_provider(self.name)

    def provider_names(self, options: EpOptions) -> tuple[str, ...]:
        """The providers that an engine is built with."""
        if options.providers:
            return options.providers
        return (self.name, _HOST) if self.is_device else (_HOST,)


CPU_BACKEND: Final = Backend(name=_HOST)


def find_backends(report: Callable[[str], None] = lambda _: None) -> list[Backend]:
    """The CPU first, then the devices of providers that are registered or installed.

    Args:
        report: Told of a provider that cannot be used; the others can.
    """
    found = [CPU_BACKEND]
    for listing in list_providers():
        if listing.name in _NOT_DEVICES:
            continue
        try:
            if not get_provider(listing.name).memory.is_host:
                found += [Backend(name=each) for each in _list_ids(listing.name)]
        except ProviderError as error:
            report(str(error))
    return found


def _list_ids(name: str) -> list[str]:
    """How Dovetail calls the devices of a provider: by its name, and further ones with their ordinals."""
    ordinals = [device.ordinal for device in get_factory(name).devices()]
    return [name if not number else f"{name}:{ordinal}" for number, ordinal in enumerate(ordinals)]


def choose_backend(given: Sequence[str], wanted: str) -> Backend:
    """The back end of a session.

    Args:
        given: The back ends whose devices ONNX Runtime gave the session. By its name an execution provider gets the
            first of its devices, which is the CPU.
        wanted: The one that the session's options name, or nothing: then it is the first with memory of its own.

    >>> choose_backend(["cpu", "gpu"], "").name
    'gpu'
    """
    devices = [name for name in given if name != _HOST]
    if not wanted:
        return Backend(name=devices[0]) if devices else CPU_BACKEND
    if wanted != _HOST and get_provider(wanted).memory.is_host:
        raise UsageError(f"'{wanted}' is no back end with memory of its own", where="option backend")
    if wanted not in given and devices:
        raise UsageError(
            f"the session has the device of back end '{devices[0]}'",
            where="option backend",
            got=wanted,
            fix=f"give the session the device whose metadata say backend={wanted}, and no other",
        )
    return Backend(name=wanted, is_given=wanted in given)
