"""Reading the parameters of user code without evaluating its annotations."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["signature_of"]


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """The signature of a callable, also when its annotations name what only a type checker imports."""
    if sys.version_info >= (3, 14):
        # From 3.14 on annotations are evaluated when they are asked for, which would raise here.
        from annotationlib import Format

        return inspect.signature(function, annotation_format=Format.FORWARDREF)
    return inspect.signature(function)
