"""What installed packages offer by entry points, found without importing them, and the policy on what may be imported.

Three groups exist: ``dovetail.providers`` names a function that returns a provider's factory, ``dovetail.plugins`` a
module that is a plugin library, ``dovetail.commands`` a module that is a command of the command line. Finding reads
package metadata only, and only when it is asked for: neither ``import dovetail`` nor a plan that runs on built-in
providers does.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from dovetail.errors import UsageError

__all__ = [
    "COMMAND_GROUP",
    "PLUGIN_GROUP",
    "PROVIDER_GROUP",
    "LoadingPolicy",
    "Offer",
    "find_offers",
    "loading_policy",
    "set_loading_policy",
]

PROVIDER_GROUP: Final = "dovetail.providers"
PLUGIN_GROUP: Final = "dovetail.plugins"
COMMAND_GROUP: Final = "dovetail.commands"

_SWITCH: Final = "DOVETAIL_AUTOLOAD"
_ALLOW_VARIABLES: Final = {
    PROVIDER_GROUP: "DOVETAIL_PROVIDERS_ALLOW",
    PLUGIN_GROUP: "DOVETAIL_PLUGINS_ALLOW",
    COMMAND_GROUP: "DOVETAIL_COMMANDS_ALLOW",
}
_TARGET: Final = re.compile(r"(?P<module>\w+(?:\.\w+)*)(?::(?P<attribute>\w+(?:\.\w+)*))?\s*(?:\[.*\])?")


@dataclass(frozen=True, kw_only=True)
class Offer:
    """One entry point of an installed distribution."""

    name: str
    target: str
    """``module`` or ``module:attribute``, as the distribution wrote it."""
    distribution: str
    version: str

    @property
    def origin(self) -> str:
        """The distribution and its version."""
        return f"{self.distribution} {self.version}"

    @property
    def module(self) -> str | None:
        """The module to import; None when the target is malformed."""
        match = _TARGET.fullmatch(self.target)
        return match["module"] if match else None

    @property
    def attribute(self) -> str | None:
        """What to take from the module, if anything."""
        match = _TARGET.fullmatch(self.target)
        return match["attribute"] if match else None


@dataclass(frozen=True, kw_only=True)
class LoadingPolicy:
    """What may be imported because an entry point names it.

    >>> LoadingPolicy(providers=frozenset({"acme"})).refusal(PROVIDER_GROUP, "other")
    "'other' is not on the allow-list"
    """

    autoload: bool = True
    """The switch: without it nothing is found, listed or imported."""
    providers: frozenset[str] | None = None
    """Names of providers that may be imported; None means all."""
    plugins: frozenset[str] | None = None
    """Names of plugin libraries that may be imported; None means all."""
    commands: frozenset[str] | None = None
    """Names of commands that may be imported; None means all."""

    def refusal(self, group: str, name: str) -> str | None:
        """Why a name of a group may not be imported, or None."""
        if not self.autoload:
            return f"entry points are switched off ({_SWITCH}=0 or a LoadingPolicy)"
        lists = {PROVIDER_GROUP: self.providers, PLUGIN_GROUP: self.plugins, COMMAND_GROUP: self.commands}
        allowed = lists[group]
        return None if allowed is None or name in allowed else f"'{name}' is not on the allow-list"


_chosen: LoadingPolicy | None = None


def set_loading_policy(policy: LoadingPolicy | None) -> None:
    """Decide for this process, whatever the environment says; None goes back to the environment.

    What was imported before stays so.
    """
    global _chosen
    _chosen = policy


def loading_policy() -> LoadingPolicy:
    """The policy in force: what ``set_loading_policy`` set, else what the environment says.

    ``DOVETAIL_AUTOLOAD=0`` switches entry points off; ``DOVETAIL_PROVIDERS_ALLOW``, ``DOVETAIL_PLUGINS_ALLOW`` and
    ``DOVETAIL_COMMANDS_ALLOW`` are names with commas between them, and set to nothing they allow nothing.
    """
    if _chosen is not None:
        return _chosen
    return LoadingPolicy(
        autoload=_read_switch(),
        providers=_read_names(PROVIDER_GROUP),
        plugins=_read_names(PLUGIN_GROUP),
        commands=_read_names(COMMAND_GROUP),
    )


def _read_switch() -> bool:
    text = os.environ.get(_SWITCH, "1")
    if text not in ("0", "1"):
        raise UsageError(
            "the switch is neither on nor off", where=f"environment variable {_SWITCH}", expected="0 or 1", got=text
        )
    return text == "1"


def _read_names(group: str) -> frozenset[str] | None:
    text = os.environ.get(_ALLOW_VARIABLES[group])
    return None if text is None else frozenset(name.strip() for name in text.split(",") if name.strip())


def find_offers(group: str) -> list[Offer]:
    """All entry points of a group, sorted by name; none when the policy switches them off."""
    if not loading_policy().autoload:
        return []
    from importlib.metadata import entry_points

    found: Iterable[Any] = entry_points(group=group)
    offers = {_read_offer(entry_point) for entry_point in found}
    return sorted(offers, key=lambda offer: (offer.name, offer.distribution, offer.target))


def _read_offer(entry_point: Any) -> Offer:
    metadata = entry_point.dist.metadata if entry_point.dist is not None else {}
    return Offer(
        name=entry_point.name,
        target=entry_point.value,
        distribution=metadata.get("Name") or "an unnamed distribution",
        version=metadata.get("Version") or "without a version",
    )
