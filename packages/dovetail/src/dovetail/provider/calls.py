"""Calling code of a provider so that what it raises names it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from dovetail.errors import DovetailError, ProviderError

__all__ = ["call", "first_line", "provider_failure"]

T = TypeVar("T")


def call(provider: str, callback: str, function: Callable[..., T], *args: Any) -> T:
    """Call a callback of a provider.

    Raises:
        ProviderError: It raised something that is no error of Dovetail's.

    >>> call("demo", "copy", lambda: 1 // 0)
    Traceback (most recent call last):
    dovetail.errors.ProviderError: provider 'demo': copy raised ZeroDivisionError: integer division or modulo by zero
      fix: tell its authors, or choose another provider
    """
    try:
        return function(*args)
    except DovetailError:
        raise
    except Exception as error:
        raise provider_failure(provider, callback, error) from error


def first_line(error: BaseException) -> str:
    r"""The start of what an exception says; names from files stand in it, so nothing a terminal would act on.

    >>> first_line(ValueError("no kernel for '\x1b[2Jé'\nat line 3"))
    "no kernel for '?[2Jé'"
    """
    lines = str(error)[:4000].splitlines() or [type(error).__name__]
    return "".join(letter if letter.isprintable() else "?" for letter in lines[0][:400])


def provider_failure(provider: str, callback: str, error: BaseException, step: str | None = None) -> ProviderError:
    """The error for what a provider raised in a callback."""
    where = f"provider '{provider}'" if step is None else f"provider '{provider}', step '{step}'"
    return ProviderError(
        f"{callback} raised {type(error).__name__}: {error}",
        where=where,
        fix="tell its authors, or choose another provider",
    )
