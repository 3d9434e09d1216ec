"""Finalizers of memory, plugins and other resources that threads may be using when the process ends.

Daemon threads go on while the interpreter ends. Releasing an object that one of them uses would crash it, so such
objects are left to the system, which frees the memory of the process.
"""

from __future__ import annotations

import atexit
import sys
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["finalize", "has_running_threads"]

T = TypeVar("T")

_is_ending = False


def has_running_threads() -> bool:
    """True if the interpreter is ending while other threads of it still run."""
    return _is_ending and len(sys._current_frames()) > 1


def finalize(owner: T, function: Callable[..., Any], *args: Any, **kwargs: Any) -> weakref.finalize[Any, T]:
    """Call a function when an object is gone, as ``weakref.finalize`` does.

    At the end of the process the function is called too, unless other threads still run then.

    Args:
        owner: The object.
        function: The function; it must not refer to the object.
        *args: Its arguments.
        **kwargs: Its arguments by name.

    Returns:
        The finalizer, which calls the function early.
    """
    return weakref.finalize(owner, _call_unless_used, function, args, kwargs)


def _call_unless_used(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if not has_running_threads():
        function(*args, **kwargs)


def _note_end() -> None:
    global _is_ending
    _is_ending = True


# Handlers run in the reverse order: `weakref` registers its own with its first finalizer, so this one runs before it.
weakref.finalize(finalize, _note_end)
atexit.register(_note_end)
