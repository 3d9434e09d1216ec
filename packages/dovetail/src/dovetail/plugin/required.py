"""What a plugin class must have: attributes that it sets, methods that it implements."""

from __future__ import annotations

from typing import Any, NoReturn

__all__ = ["RequiredAttribute", "refuse_call"]


class RequiredAttribute:
    """An attribute that a subclass must set; reading it before says so."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type) -> Any:
        raise AttributeError(f"{owner.__name__}.{self._name} not initialized: set self.{self._name} in __init__")


def refuse_call(instance: object, method: str) -> NoReturn:
    """Say that a class lacks a method that the contract asks for."""
    raise NotImplementedError(f"{type(instance).__name__} must implement {method}")
