"""Where code came from: the file and line of a creator or resource, for messages that name both parties."""

from __future__ import annotations

import inspect
from typing import Any

__all__ = ["describe", "origin_of"]


def origin_of(thing: Any) -> str:
    """File and line where an object's class (or the function it wraps) is written, or the module when unknown."""
    source = getattr(thing, "__wrapped__", None) or type(thing)
    code = getattr(source, "__code__", None) or _any_code(source)
    if code is None:
        return f"module {getattr(source, '__module__', 'unknown')}"
    return f"{code.co_filename}:{code.co_firstlineno}"


def _any_code(cls: type) -> Any:
    """The first function written in a class body: cheaper than reading the source, and there without it too."""
    functions = (f for f in vars(cls).values() if inspect.isfunction(f))
    codes = [f.__code__ for f in functions if f.__module__ == cls.__module__]
    return min(codes, key=lambda code: code.co_firstlineno, default=None)


def describe(thing: Any) -> str:
    """The class and place of an object.

    >>> from dovetail.plugin.resources import ResourceTable
    >>> describe(ResourceTable())
    'ResourceTable (...resources.py:...)'
    """
    return f"{type(thing).__name__} ({origin_of(thing)})"
