"""Modules that plugin files import and that another package of Dovetail stands in for where they are not installed.

A plugin that was written for TensorRT says ``import tensorrt``. Where that module is not installed and
``dovetail-tensorrt`` is, its module of the same form is put in place, and the file is read once more.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import Final, TypeVar

from dovetail._extras import install_line

__all__ = ["advise_missing", "with_stand_ins"]

T = TypeVar("T")

_STAND_INS: Final = {"tensorrt": "dovetail_tensorrt"}
"""What is imported -> the package whose ``install`` puts a module of ours in its place."""


def with_stand_ins(read: Callable[[], T]) -> T:
    """Import something; again, with a module of ours in place, when the one that it lacks is stood in for."""
    try:
        return read()
    except ModuleNotFoundError as error:
        package = _find_package(error)
        if package is None or importlib.util.find_spec(package) is None:
            raise
    importlib.import_module(package).install()
    return read()


def advise_missing(error: BaseException) -> str | None:
    """What to install for a module that an import did not find; None for every other error."""
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return None
    package = _find_package(error)
    if package is not None:
        return install_line(package=package.replace("_", "-"))
    return f"install the package that has '{error.name.partition('.')[0]}'"


def _find_package(error: ModuleNotFoundError) -> str | None:
    return _STAND_INS.get((error.name or "").partition(".")[0])
