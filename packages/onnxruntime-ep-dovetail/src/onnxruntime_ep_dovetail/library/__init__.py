"""The native part: the shared library that ONNX Runtime loads, and the Compute that it calls.

Both come twice. The compiled ones are `libdovetail_ep.so` (library.c) and the extension module `_compute` (compute.c).
Where the package was built without a compiler, `elf.py` writes the library as bytes and `fallback.py` computes through
ctypes. Everything else in the package asks here and does not know which it got.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from pathlib import Path

from onnxruntime_ep_dovetail.library.contract import Compute
from onnxruntime_ep_dovetail.library.written import place_library

__all__ = ["LIBRARY_NAME", "describe", "find_library", "load_compute"]

LIBRARY_NAME = "libdovetail_ep.so"
_FOLDER = Path(__file__).resolve().parent


def _is_native_wanted() -> bool:
    return os.environ.get("DOVETAIL_EP_NATIVE", "1") != "0"


def find_library() -> Path:
    """Return the library to register: the compiled one, or one written into a private folder of the user.

    DOVETAIL_EP_NATIVE=0 in the environment chooses the written one even if the other is there.
    """
    compiled = _FOLDER / LIBRARY_NAME
    if _is_native_wanted() and compiled.is_file():
        return compiled
    return place_library()


def load_compute() -> Compute:
    """Return the module with Compute: the extension module, or the one that goes through ctypes.

    DOVETAIL_EP_NATIVE=0 in the environment chooses the second even if the first is there.
    """
    if _is_native_wanted() and importlib.util.find_spec(f"{__name__}._compute") is not None:
        from onnxruntime_ep_dovetail.library import _compute

        return _compute
    from onnxruntime_ep_dovetail.library import fallback

    return fallback


def describe() -> str:
    """Say for a reader which of the two of each is in use, and why.

    >>> print(describe())  # doctest: +ELLIPSIS
    library: ...
    compute: ...
    """
    library = find_library()
    origin = "compiled" if library.parent == _FOLDER else "written without a compiler"
    module = load_compute()
    name = getattr(module, "__name__", "").rpartition(".")[2]
    way = "extension module" if name == "_compute" else "through ctypes, a few microseconds a run slower"
    asked = "" if _is_native_wanted() else " (asked for by DOVETAIL_EP_NATIVE=0)"
    return f"library: {library} ({origin}){asked}\ncompute: {name} ({way}){asked}"
