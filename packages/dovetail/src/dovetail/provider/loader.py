"""Finding back ends by name and making each once per process and device.

Built-in providers are listed here without importing them; a provider is imported when it is asked for.
"""

from __future__ import annotations

import difflib
import importlib
import threading
from typing import Any, Final

from dovetail.errors import ProviderError
from dovetail.provider.interfaces import API_VERSION, Provider, ProviderFactory

__all__ = ["get_factory", "get_provider", "provider_names"]

_BUILT_IN: Final = {"cpu": "dovetail.providers.cpu.provider"}
_lock = threading.Lock()
_providers: dict[str, Provider] = {}


def provider_names() -> list[str]:
    """All names that can be asked for, imported or not."""
    return sorted(_BUILT_IN)


def get_factory(name: str) -> ProviderFactory:
    """The factory of a back end, checked for the contract's version."""
    if name not in _BUILT_IN:
        near = difflib.get_close_matches(name, _BUILT_IN) or provider_names()
        raise ProviderError(f"there is no provider '{name}'", expected=f"one of {', '.join(near)}")
    factory: Any = importlib.import_module(_BUILT_IN[name]).create_factory()
    if factory.api_version != API_VERSION:
        raise ProviderError(
            f"provider '{name}' was written for another version of the contract",
            expected=API_VERSION,
            got=factory.api_version,
            fix="install the version of the provider that belongs to this Dovetail",
        )
    checked: ProviderFactory = factory
    return checked


def get_provider(name: str) -> Provider:
    """The provider of that name on its first device, made once."""
    with _lock:
        if name not in _providers:
            factory = get_factory(name)
            devices = factory.devices()
            if not devices:
                raise ProviderError(f"provider '{name}' finds no device here", fix="choose another provider")
            _providers[name] = factory.create(devices[0], {})
        return _providers[name]
