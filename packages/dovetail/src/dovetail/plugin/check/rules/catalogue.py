"""The catalogue of rules for plugins; a rule is a function over a ``CheckedPlugin``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dovetail.rules import Catalogue, Rule

if TYPE_CHECKING:
    from dovetail.plugin.check.driver import CheckedPlugin

__all__ = ["registered_rules", "rule"]

_CATALOGUE: Final[Catalogue[CheckedPlugin]] = Catalogue()

rule = _CATALOGUE.rule


def registered_rules() -> tuple[Rule[CheckedPlugin], ...]:
    """Every rule whose module was imported, by id."""
    return _CATALOGUE.rules()
