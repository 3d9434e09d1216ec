"""The providers of one build or one engine, each with the options chosen for it.

Two engines of a process may run the same provider with different options, so whatever belongs to an engine looks its
providers up here and not in the loader. Options such as a number of threads belong to the machine that runs and not to
the plan, which is why they are given when a plan is loaded and are never stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dovetail.errors import UsageError
from dovetail.loggers import ILogger, Severity
from dovetail.provider.interfaces import Provider
from dovetail.provider.loader import get_provider, require_provider, split_id

__all__ = ["ProviderOptions", "Providers"]

ProviderOptions = Mapping[str, Mapping[str, str]]
"""Provider, by name for all its devices or by id for one -> option -> value."""


class Providers:
    """Providers by id, made when they are first asked for and then kept.

    A provider that the options do not name has the default ones of the process (``set_default_options``).

    >>> Providers()["cpu"].name
    'cpu'
    >>> Providers({"cpu": {"threads": "2"}})["cpu"]
    Traceback (most recent call last):
    dovetail.errors.ProviderError: provider 'cpu': unknown option(s) threads; expected layout

    Args:
        options: The options of some of them.
        logger: Who is told what is wrong with options and does no harm; nobody where it was told already.

    Raises:
        UsageError: The options are no mapping of mappings.
        ProviderError: They name a provider that is not there.
    """

    def __init__(self, options: ProviderOptions | None = None, logger: ILogger | None = None) -> None:
        self.options = {name: dict(chosen) for name, chosen in _check_options(options or {}).items()}
        self._logger = logger
        self._made: dict[str, Provider] = {}

    def __getitem__(self, provider_id: str) -> Provider:
        """The provider of that name, or of that name and ordinal, such as ``gpu:1``.

        Raises:
            DeviceMissingError: It has no such device.
            ProviderError: There is none of that name, an option is wrong, or making it failed.
        """
        made = self._made.get(provider_id)
        if made is None:
            name, _ = split_id(provider_id)
            options = self.options.get(provider_id, self.options.get(name))
            made = self._made.setdefault(provider_id, get_provider(provider_id, options))
            self._tell_warnings(made)
        return made

    def _tell_warnings(self, provider: Provider) -> None:
        if self._logger is not None:
            for text in provider.option_warnings:
                self._logger.log(Severity.WARNING, f"provider '{provider.id}': {text}")


def _check_options(options: Any) -> ProviderOptions:
    expected = "a mapping from provider to a mapping from option to value"
    if not isinstance(options, Mapping):
        raise UsageError("not options of providers", expected=expected, got=type(options).__name__)
    for name, chosen in options.items():
        if not isinstance(name, str) or not isinstance(chosen, Mapping):
            got = f"{type(name).__name__} and {type(chosen).__name__}"
            raise UsageError("not options of a provider", where=f"provider {name!a}", expected=expected, got=got)
        require_provider(name)
    return options
