"""TensorRT's shared libraries by name, for scripts that open them with ctypes.

Scripts open ``libnvinfer_plugin.so`` so that its plugins are there. Where no such file is, opening one of these names
gives the running process, and the built-in plugins are registered. Every other library is opened as always.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from pathlib import PurePath
from typing import Any, Final

__all__ = ["answer_for_libraries"]

_NAME: Final = re.compile(r"(lib)?(nvinfer|nvonnxparser)(_plugin|_vc_plugin)?(_\d+)?\.(so(\.\d+)*|dll)")
_PLUGINS: Final = "nvinfer_plugin"


def answer_for_libraries() -> Callable[[], None]:
    """Let ``ctypes`` open libraries of TensorRT that are not there; what undoes it comes back."""
    open_library = ctypes._dlopen  # type: ignore[attr-defined]

    def open_or_answer(name: Any, *arguments: Any) -> Any:
        try:
            return open_library(name, *arguments)
        except OSError:
            file = PurePath(str(name)).name
            if _NAME.fullmatch(file) is None:
                raise
            if _PLUGINS in file:
                _register_plugins()
            return open_library(None, *arguments)

    def undo() -> None:
        ctypes._dlopen = open_library  # type: ignore[attr-defined]

    ctypes._dlopen = open_or_answer  # type: ignore[attr-defined]
    return undo


def _register_plugins() -> None:
    from dovetail_tensorrt.trt.registry import init_libnvinfer_plugins

    init_libnvinfer_plugins()
