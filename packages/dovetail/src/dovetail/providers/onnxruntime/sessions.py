"""Sessions of ONNX Runtime: one thread pool for all of the process, and options that every session shares.

Each session would otherwise have a spinning pool of its own, and a model cut into ten sessions would run many times
slower than with one.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Final

from dovetail.errors import ProviderError

__all__ = ["EXECUTION_PROVIDER", "Level", "create_session", "import_onnxruntime", "make_options"]

EXECUTION_PROVIDER: Final = "CPUExecutionProvider"
_ERRORS_ONLY: Final = 3

_lock = threading.Lock()
_pool_threads: int | None = None


class Level:
    """How far ONNX Runtime optimises a graph, by the names it gives."""

    NONE: Final = "ORT_DISABLE_ALL"
    BASIC: Final = "ORT_ENABLE_BASIC"
    EXTENDED: Final = "ORT_ENABLE_EXTENDED"
    """Everything that does not depend on the CPU."""
    ALL: Final = "ORT_ENABLE_ALL"


def import_onnxruntime() -> Any:
    """The module, or an error that says how to get it."""
    try:
        import onnxruntime
    except ImportError as error:
        raise ProviderError(
            "onnxruntime is not installed", where="provider 'onnxruntime'", fix='pip install "dovetail[onnxruntime]"'
        ) from error
    return onnxruntime


def make_options(level: str, *, threads: int, entries: Mapping[str, str] | None = None) -> Any:
    """Options of a session that uses the pool of the process."""
    onnxruntime = import_onnxruntime()
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.log_severity_level = _ERRORS_ONLY
    if _share_pool(onnxruntime, threads):
        options.use_per_session_threads = False
    else:
        options.intra_op_num_threads = threads
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    for key, value in (entries or {}).items():
        options.add_session_config_entry(key, value)
    return options


def create_session(model: bytes | str, options: Any, *, where: str) -> Any:
    """A session over a model, as bytes or a path."""
    onnxruntime = import_onnxruntime()
    try:
        return onnxruntime.InferenceSession(model, options, providers=[EXECUTION_PROVIDER])
    except Exception as error:  # its error classes have no common base but Exception
        text = str(error).splitlines()
        raise ProviderError(
            f"ONNX Runtime does not take a partition: {text[0][:300] if text else type(error).__name__}", where=where
        ) from error


def _share_pool(onnxruntime: Any, threads: int) -> bool:
    """Make the pool with the first session; one with another number of threads gets a pool that does not spin."""
    global _pool_threads
    with _lock:
        if _pool_threads is None:
            onnxruntime.set_global_thread_pool_sizes(threads, 1)
            _pool_threads = threads
        return _pool_threads == threads
