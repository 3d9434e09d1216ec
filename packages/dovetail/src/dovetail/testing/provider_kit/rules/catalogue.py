"""The catalogue of rules for providers; a rule is a function over a ``CheckedProvider``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dovetail.rules import Catalogue, Rule

if TYPE_CHECKING:
    from dovetail.testing.provider_kit.subject import CheckedProvider

__all__ = ["registered_rules", "rule"]

_CATALOGUE: Final[Catalogue[CheckedProvider]] = Catalogue()

rule = _CATALOGUE.rule


def registered_rules() -> tuple[Rule[CheckedProvider], ...]:
    """Every rule whose module was imported, by id."""
    return _CATALOGUE.rules()
