"""Doors from low rooms to higher ones: what methods of an engine need of rooms that are built on the runtime.

Imports flow one way, so a low room names a higher one here, and it is imported when such a method is called.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

__all__ = ["open_door"]

_DOORS: Final = {
    "draw_report": "dovetail.report.document",
    "make_benchmark_inputs": "dovetail.inputs.feeds",
}


def open_door(name: str) -> Any:
    """The function of this name in the room that has it."""
    return getattr(import_module(_DOORS[name]), name)
