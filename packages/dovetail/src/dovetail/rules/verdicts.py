"""How a rule ends: the statuses, and the exceptions that end a rule early.

A rule that returns has passed. The exceptions never leave the machinery: each becomes an outcome with its status.
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

__all__ = ["Blocked", "Broken", "NotApplicable", "NotJudged", "NotOffered", "RuleVerdict", "Status"]


class Status(StrEnum):
    """How a rule ended."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_APPLICABLE = "not_applicable"
    NOT_OFFERED = "not_offered"
    NOT_JUDGED = "not_judged"


class RuleVerdict(Exception):
    """How a rule ended when it did not pass; the text is the finding or the reason."""

    status: ClassVar[Status]

    def __init__(self, message: str, *, fix: str | None = None) -> None:
        super().__init__(message)
        self.fix = fix


class Broken(RuleVerdict):
    """The rule is broken: which method, position or element, what was expected and what was seen.

    ``fix`` says what to do instead of the rule's general advice.
    """

    status = Status.FAILED


class NotApplicable(RuleVerdict):
    """The rule says nothing about what is judged."""

    status = Status.NOT_APPLICABLE


class Blocked(NotApplicable):
    """The rule of a plugin could not be judged, because something it needs failed first."""


class NotOffered(RuleVerdict):
    """The back end does not have what the rule is about."""

    status = Status.NOT_OFFERED


class NotJudged(RuleVerdict):
    """The rule of a back end could not be judged, because something that it needs failed; the text names that rule."""

    status = Status.NOT_JUDGED
