"""The error that a wrong decorator, signature or call raises: one of ours, and a ``ValueError``, as scripts expect."""

from __future__ import annotations

from dovetail.errors import UsageError

__all__ = ["DecoratorError"]


class DecoratorError(UsageError, ValueError):
    """A plugin written with decorators, or a call of one, can never be right."""
