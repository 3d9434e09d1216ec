"""Finding back ends by name and making each once per process, device and options.

Built-in providers are listed here; others come from the entry points ``dovetail.providers`` of installed packages,
which are listed without importing them, or are registered by the program itself. A provider is imported when it is
asked for, and one that does not keep the contract is named in the error; the others are not affected.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from dovetail._interrupts import UninterruptedImport
from dovetail.entry_points import PROVIDER_GROUP, Offer, find_offers, loading_policy
from dovetail.errors import DeviceMissingError, DovetailError, ProviderError
from dovetail.near_names import suggest
from dovetail.provider.interfaces import API_VERSION, Device, Provider, ProviderFactory, TargetFactory

__all__ = [
    "TARGET",
    "ProviderListing",
    "get_any_provider",
    "get_default_options",
    "get_factory",
    "get_provider",
    "has_provider",
    "list_made",
    "list_providers",
    "provider_names",
    "register_provider",
    "require_provider",
    "set_default_options",
    "split_id",
    "unregister_provider",
]

T = TypeVar("T")

TARGET: Final = "target"
"""The option by which a provider is made for a device that is not here."""

_BUILT_IN: Final = {
    "cpu": "dovetail.providers.cpu.provider",
    "onnxruntime": "dovetail.providers.onnxruntime.provider",
}
_lock = threading.RLock()  # making a provider may ask for another one
_factories: dict[str, ProviderFactory] = {}
_registered: set[str] = set()
"""The names among the factories that the program registered itself."""
_providers: dict[tuple[str, int, frozenset[tuple[str, str]]], Provider] = {}
_default_options: dict[str, dict[str, str]] = {}
"""For whoever asks for a provider and says nothing of options, as loading a plan does."""


@dataclass(frozen=True, kw_only=True)
class ProviderListing:
    """A provider as it can be listed without importing it."""

    name: str
    origin: str
    """``built in``, ``registered``, or the distribution that offers it with its version."""
    is_imported: bool
    problem: str | None = None
    """Why it cannot be asked for, as far as that shows without importing it."""


def list_providers() -> list[ProviderListing]:
    """Every provider, built in or offered by an installed package, sorted by name; nothing is imported."""
    built_in = [
        ProviderListing(name=name, origin="built in", is_imported=_BUILT_IN[name] in sys.modules) for name in _BUILT_IN
    ]
    registered = [ProviderListing(name=name, origin="registered", is_imported=True) for name in _registered]
    offers = find_offers(PROVIDER_GROUP)
    return sorted(
        [*built_in, *registered, *(_list_offer(offer, offers) for offer in offers)],
        key=lambda listing: (listing.name, listing.origin),
    )


def _list_offer(offer: Offer, offers: list[Offer]) -> ProviderListing:
    return ProviderListing(
        name=offer.name,
        origin=offer.origin,
        is_imported=offer.name in _factories and offer.name not in _BUILT_IN,
        problem=_obstacle(offer, offers),
    )


def _obstacle(offer: Offer, offers: list[Offer]) -> str | None:
    if offer.name in _BUILT_IN:
        return "the name is that of a built-in provider"
    if offer.name in _registered:
        return "the program registered another provider of this name"
    others = [other.origin for other in offers if other.name == offer.name and other != offer]
    if others:
        return f"{', '.join(others)} offers the same name"
    if offer.module is None or offer.attribute is None:
        return f"the entry point is '{offer.target}' and not 'module:function'"
    return loading_policy().refusal(PROVIDER_GROUP, offer.name)


def provider_names() -> list[str]:
    """All names that can be asked for, imported or not."""
    return sorted({listing.name for listing in list_providers() if listing.problem is None})


def split_id(provider_id: str) -> tuple[str, int]:
    """The name of a provider and the ordinal of its device, from how plans call it (``Provider.id``).

    >>> split_id("gpu"), split_id("gpu:1")
    (('gpu', 0), ('gpu', 1))
    """
    name, colon, ordinal = provider_id.rpartition(":")
    return (name, int(ordinal)) if colon and ordinal.isdecimal() and ordinal.isascii() else (provider_id, 0)


def has_provider(provider_id: str) -> bool:
    """Whether the name can be asked for; packages are searched only when it is no built-in one."""
    name, _ = split_id(provider_id)
    return name in _BUILT_IN or name in _registered or name in provider_names()


def require_provider(name: str) -> None:
    """Check that the name can be asked for.

    Raises:
        ProviderError: It cannot.
    """
    if not has_provider(name):
        raise _unknown(name)


def register_provider(factory: ProviderFactory) -> None:
    """Add a back end of the program's own, under the name that its factory has.

    Raises:
        ProviderError: The name is taken, or the factory does not keep the contract.
    """
    name = str(getattr(factory, "name", type(factory).__name__))
    where = f"provider '{name}'"
    checked = _call(where, "when it was asked who it is", lambda: _check_factory(factory, name, where))
    with _lock:
        if name in _BUILT_IN or name in _factories:
            raise ProviderError("there is a provider of this name already", where=where, fix="choose another name")
        _factories[name] = checked
        _registered.add(name)


def unregister_provider(name: str) -> None:
    """Take back what ``register_provider`` added; engines that use the provider keep it.

    Raises:
        ProviderError: No provider of this name was registered.
    """
    with _lock:
        if name not in _registered:
            raise ProviderError(f"no provider '{name}' was registered", expected=f"one of {sorted(_registered)}")
        _registered.discard(name)
        del _factories[name]
        for key in [key for key in _providers if key[0] == name]:
            del _providers[key]


def get_factory(provider_id: str) -> ProviderFactory:
    """The factory of a back end, imported now if need be and checked for its name and the contract's version.

    Raises:
        ProviderError: There is none of that name, the policy refuses it, or it does not keep the contract.
    """
    name, _ = split_id(provider_id)
    with _lock:
        if name not in _factories:
            _factories[name] = _make_built_in(name) if name in _BUILT_IN else _make_offered(_find_offer(name))
        return _factories[name]


def get_provider(provider_id: str, options: Mapping[str, str] | None = None, ordinal: int | None = None) -> Provider:
    """The provider of that name or id, made once for the same device and options; without any, the default ones.

    Args:
        provider_id: Its name, or the name and the ordinal of a device, such as ``gpu:1``.
        options: Its options.
        ordinal: The device, in place of what the id says.

    Raises:
        DeviceMissingError: There is no such device.
        ProviderError: See ``get_factory``; or an option is wrong, or making it failed.
    """
    name, told = split_id(provider_id)
    number = told if ordinal is None else ordinal
    chosen = _default_options.get(name, {}) if options is None else options
    key = (name, number, _freeze_options(name, chosen))
    with _lock:
        if key not in _providers:
            _providers[key] = _make_provider(name, number, dict(chosen))
        return _providers[key]


def list_made() -> list[Provider]:
    """The providers that this process has made so far, such as those of the engines it has loaded."""
    with _lock:
        return list(_providers.values())


def get_any_provider(name: str) -> Provider:
    """The provider on a device that is here, or else for one that is not: what it covers is the same.

    Raises:
        ProviderError: See ``get_provider``.
    """
    factory = get_factory(name)
    if isinstance(factory, TargetFactory) and not factory.devices():
        return get_provider(name, {TARGET: factory.default_target})
    return get_provider(name)


def set_default_options(name: str, options: Mapping[str, str]) -> None:
    """Choose the options of a provider in this process, for builds and for plans; engines that exist keep theirs.

    Raises:
        ProviderError: There is no such provider, or an option is not text.
    """
    _freeze_options(name, options)
    require_provider(name)
    _default_options[name] = dict(options)


def _freeze_options(name: str, options: Mapping[Any, Any]) -> frozenset[tuple[str, str]]:
    for option, value in options.items():
        if not isinstance(option, str) or not isinstance(value, str):
            raise ProviderError(
                f"option {option!r} is not text",
                where=f"provider '{name}'",
                expected="names and values of type str",
                got=f"{type(option).__name__} and {type(value).__name__}",
            )
    return frozenset(options.items())


def get_default_options(name: str) -> dict[str, str]:
    """The options that ``set_default_options`` chose."""
    return dict(_default_options.get(name, {}))


# factories


def _make_built_in(name: str) -> ProviderFactory:
    with UninterruptedImport():
        factory: ProviderFactory = importlib.import_module(_BUILT_IN[name]).create_factory()
    return factory


def _find_offer(name: str) -> Offer:
    offers = find_offers(PROVIDER_GROUP)
    offer = next((offer for offer in offers if offer.name == name), None)
    if offer is None:
        raise _unknown(name)
    problem = _obstacle(offer, offers)
    if problem is not None:
        raise ProviderError(f"the provider cannot be used: {problem}", where=f"provider '{name}' of {offer.origin}")
    return offer


def _unknown(name: str) -> ProviderError:
    names = provider_names()
    fix = suggest(name, names) or "install the package that has it"
    if not loading_policy().autoload:
        fix = loading_policy().refusal(PROVIDER_GROUP, name) or fix
    return ProviderError(f"there is no provider '{name}'", expected=f"one of {', '.join(names)}", fix=fix)


def _make_offered(offer: Offer) -> ProviderFactory:
    where = f"provider '{offer.name}' of {offer.origin}"
    factory = _call(where, "when it was imported", lambda: _import_factory(offer))
    return _call(where, "when it was asked who it is", lambda: _check_factory(factory, offer.name, where))


def _import_factory(offer: Offer) -> Any:
    with UninterruptedImport():
        found: Any = importlib.import_module(offer.module or "")
    for part in (offer.attribute or "").split("."):
        found = getattr(found, part)
    return found()


def _check_factory(factory: Any, name: str, where: str) -> ProviderFactory:
    version = getattr(factory, "api_version", None)  # first: what else a factory has depends on it
    if version is not None and version != API_VERSION:
        raise ProviderError(
            "it was written for another version of the contract",
            where=where,
            expected=API_VERSION,
            got=version,
            fix="install the version of the provider that belongs to this Dovetail",
        )
    if not isinstance(factory, ProviderFactory):
        raise ProviderError(
            "what it gave is no factory", where=where, expected="a ProviderFactory", got=type(factory).__name__
        )
    if factory.name != name:
        raise ProviderError("its factory goes by another name", where=where, expected=name, got=factory.name)
    return factory


# providers


def _make_provider(name: str, ordinal: int, options: dict[str, str]) -> Provider:
    factory, where = get_factory(name), f"provider '{name}'"
    if TARGET in options and isinstance(factory, TargetFactory):
        device = _call(where, "when it was asked for a target", lambda: factory.find_target(options[TARGET]))
    else:
        device = _find_device(factory, name, ordinal)
    provider = _call(where, "when it was made", lambda: factory.create(device, options))
    if not isinstance(provider, Provider):
        raise ProviderError(
            "what its factory made is no provider", where=where, expected="a Provider", got=type(provider).__name__
        )
    if provider.name != name:
        raise ProviderError("it goes by another name than its factory", where=where, expected=name, got=provider.name)
    if ordinal and provider.device.ordinal != ordinal:
        got = provider.device.ordinal
        raise ProviderError("it was made on another device than asked for", where=where, expected=ordinal, got=got)
    return provider


def _find_device(factory: ProviderFactory, name: str, ordinal: int) -> Device:
    where = f"provider '{name}'"
    devices = list(_call(where, "when it was asked for devices", factory.devices))
    if not devices:
        raise DeviceMissingError("it finds no device here", where=where, fix=_advise_without_device(factory))
    device = devices[0] if not ordinal else next((found for found in devices if found.ordinal == ordinal), None)
    if device is None:
        there = ", ".join(f"{name}:{found.ordinal}" if found.ordinal else name for found in devices)
        what = f"it has no device {ordinal} here"
        raise DeviceMissingError(what, where=where, expected=f"one of {there}", got=ordinal)
    return device


def _advise_without_device(factory: ProviderFactory) -> str:
    if not isinstance(factory, TargetFactory):
        return "choose another provider"
    return "choose another provider, build for a device elsewhere with --target, or use the plan where its device is"


def _call(where: str, when: str, function: Callable[[], T]) -> T:
    """Call code of a provider; what it raises becomes an error that names it."""
    try:
        return function()
    except DovetailError:
        raise
    except (Exception, SystemExit) as error:
        raise ProviderError(
            f"it raised {type(error).__name__} {when}: {error}",
            where=where,
            fix="tell its authors, or choose another provider",
        ) from error
