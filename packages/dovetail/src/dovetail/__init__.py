"""Dovetail: an inference engine made of plug-ins.

Importing this package imports nothing else, not even NumPy: each public name is loaded when it is first used. So
``import dovetail as trt`` serves plugin code written for the contract's names, and ``import dovetail`` stays fast.
Type checkers and editors read the names from ``__init__.pyi``.
"""

from __future__ import annotations

import importlib

from dovetail._exports import ALIASES, EXPORTS
from dovetail._version import __version__

__all__ = ["__version__", *sorted(EXPORTS), *sorted(ALIASES)]  # noqa: PLE0604


def __getattr__(name: str) -> object:
    if name in EXPORTS:
        value = getattr(importlib.import_module(EXPORTS[name]), name)
    elif name in ALIASES:
        module, path = ALIASES[name]
        value = importlib.import_module(module)
        for part in path.split("."):
            value = getattr(value, part)
    else:
        raise AttributeError(f"module 'dovetail' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
