"""Reading user code: the file and line of a creator or resource for messages, and the parameters of a callable."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["describe", "origin_of", "signature_of"]


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
    """The class and place of an object, or what it stands for where that is no Python object.

    >>> from dovetail.plugin.resources import ResourceTable
    >>> describe(ResourceTable())
    'ResourceTable (...resources.py:...)'
    """
    return getattr(thing, "adapted_name", None) or f"{type(thing).__name__} ({origin_of(thing)})"


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """The signature of a callable, also when its annotations name what only a type checker imports."""
    if sys.version_info >= (3, 14):
        # From 3.14 on annotations are evaluated when they are asked for, which would raise here.
        from annotationlib import Format

        return inspect.signature(function, annotation_format=Format.FORWARDREF)
    return inspect.signature(function)
