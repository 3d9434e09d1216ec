"""How a rule ends early: broken, not applicable, or blocked by what another rule owns.

A rule that returns has passed. These exceptions never leave the checker; the runner turns each into an outcome.
"""

from __future__ import annotations

__all__ = ["Blocked", "Broken", "NotApplicable"]


class Broken(Exception):
    """The plugin breaks the rule that is being judged.

    Args:
        message: Which method, position or element, what was expected and what was seen.
        fix: What to do instead of the rule's general advice.
    """

    def __init__(self, message: str, *, fix: str | None = None) -> None:
        super().__init__(message)
        self.fix = fix


class NotApplicable(Exception):
    """The rule says nothing about this plugin; the text is the reason."""


class Blocked(NotApplicable):
    """The rule could not be judged, because something it needs failed first."""
