"""The native part: the shared library that ONNX Runtime loads (library.c), and the Compute that it calls (compute.c).

Both are compiled when the package is built, the second once for each version of Python.
"""

from __future__ import annotations

from pathlib import Path

from dovetail.errors import ResourceError

try:
    from onnxruntime_ep_dovetail.library import _compute as compute
except ImportError as error:
    raise ResourceError(
        "the compiled part of onnxruntime-ep-dovetail is not there for this Python",
        got=error,
        fix="install a wheel for this version of Python, or install from source again with this Python",
    ) from error

__all__ = ["LIBRARY_NAME", "compute", "find_library"]

LIBRARY_NAME = "libdovetail_ep.so"


def find_library() -> Path:
    """Return the library to register."""
    return Path(__file__).resolve().parent / LIBRARY_NAME
