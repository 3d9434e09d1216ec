"""Dovetail: an inference engine made of plug-ins.

Importing this package imports nothing else, not even NumPy: each public name is loaded when it is first used. So
``import dovetail as trt`` serves plugin code written for the contract's names, and ``import dovetail`` stays fast.
Type checkers and editors read the names from ``__init__.pyi``.
"""

from __future__ import annotations

import importlib

from dovetail._exports import ALIASES, EXPORTS
from dovetail._interrupts import UninterruptedImport
from dovetail._version import __version__

__all__ = ["__version__", *sorted(EXPORTS), *sorted(ALIASES)]  # noqa: PLE0604


def __getattr__(name: str) -> object:
    if name not in EXPORTS and name not in ALIASES:
        raise AttributeError(f"module 'dovetail' has no attribute {name!r}")
    module, path = ALIASES[name] if name in ALIASES else (EXPORTS[name], name)
    value = _import(module)
    for part in path.split("."):
        value = getattr(value, part)
    globals()[name] = value
    return value


def _import(module: str) -> object:
    try:
        with UninterruptedImport():
            return importlib.import_module(module)
    except ModuleNotFoundError as error:
        from dovetail._extras import describe_missing

        missing = describe_missing(error)
        if missing is None:
            raise
        raise missing from error


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
