"""Facts about a plugin that several rules need, found out once; a fact that cannot be had blocks those rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar, overload

from dovetail.plugin.check.host.calls import CallbackRaised, blocked_by
from dovetail.rules import Blocked

__all__ = ["Evidence", "HasEvidence", "Log"]

T = TypeVar("T")


class Log:
    """What was noticed along the way, whichever rule was being judged."""

    def __init__(self) -> None:
        self.raised: list[CallbackRaised] = []
        self.statuses: list[str] = []
        self.mutations: list[str] = []

    def first_raise(self, methods: frozenset[str]) -> CallbackRaised | None:
        """The first raise of one of these callbacks."""
        return next((raised for raised in self.raised if raised.method in methods), None)


class HasEvidence(Protocol):
    """What an ``Evidence`` attribute needs of its owner."""

    log: Log
    known: dict[str, Any]


class Evidence(Generic[T]):
    """A cached attribute that remembers failure too.

    A callback that raises while the fact is found out goes to the owner's log, once, and every reader is blocked.
    """

    def __init__(self, find: Callable[[Any], T]) -> None:
        self._find = find
        self.__doc__ = find.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, owner: None, kind: type) -> Evidence[T]: ...
    @overload
    def __get__(self, owner: HasEvidence, kind: type) -> T: ...
    def __get__(self, owner: HasEvidence | None, kind: type) -> Evidence[T] | T:
        if owner is None:
            return self
        if self._name not in owner.known:
            owner.known[self._name] = self._try(owner)
        found = owner.known[self._name]
        if isinstance(found, Blocked):
            raise Blocked(str(found))
        return found  # type: ignore[no-any-return]

    def _try(self, owner: HasEvidence) -> T | Blocked:
        try:
            return self._find(owner)
        except CallbackRaised as raised:
            owner.log.raised.append(raised)
            return blocked_by(raised)
        except Blocked as blocked:
            return blocked
