"""How a rule ends early: broken, not offered, or not judged because something that it needs failed first.

A rule that returns has passed. These exceptions never leave the kit; the runner turns each into an outcome.
"""

from __future__ import annotations

__all__ = ["NotJudged", "NotOffered", "RuleBroken"]


class RuleBroken(Exception):
    """The provider breaks the rule: which callback, what was expected and what was seen."""


class NotOffered(Exception):
    """The provider does not have what the rule is about; the text says so."""


class NotJudged(Exception):
    """The rule could not be judged, because something that it needs failed; the text names that rule."""
