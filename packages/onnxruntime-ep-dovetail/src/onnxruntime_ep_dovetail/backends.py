"""Dovetail's back ends as the devices of the execution provider: the CPU, and every provider with memory of its own.

Which ones there are is found out when the library is registered. A device of ONNX Runtime stands for one back end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dovetail.provider.interfaces import Provider
from dovetail.provider.loader import get_provider, list_providers
from onnxruntime_ep_dovetail.options import EpOptions

__all__ = ["CPU_BACKEND", "Backend", "find_backends"]

_HOST: Final = "cpu"
_NOT_DEVICES: Final = frozenset((_HOST, "onnxruntime"))
"""Providers of the host; ONNX Runtime inside ONNX Runtime would be sessions inside sessions."""


@dataclass(frozen=True, kw_only=True)
class Backend:
    """Where partitions run."""

    name: str
    """Of the provider in Dovetail."""

    @property
    def is_device(self) -> bool:
        """Whether it has memory of its own."""
        return self.name != _HOST

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


def find_backends() -> list[Backend]:
    """The CPU first, then the devices of providers that are registered or installed."""
    others = [listing.name for listing in list_providers() if listing.name not in _NOT_DEVICES]
    devices = [Backend(name=name) for name in others if not get_provider(name).memory.is_host]
    return [CPU_BACKEND, *devices]
