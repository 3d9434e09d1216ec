"""Sessions of ONNX Runtime, and the threads they run on.

A session has a pool of threads of its own, which spin for a while after a run: best for one session, and ruin for ten
that run in turn. So the threads of a session that is not alone stop to spin when its run ends. One pool for the whole
process would do as well, but then ONNX Runtime refuses every session that does not use it, those of the user's own
code too; who wants it asks for it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

from dovetail._interrupts import UninterruptedImport
from dovetail.errors import ProviderError
from dovetail.provider.calls import first_line

__all__ = [
    "EXECUTION_PROVIDER",
    "FOLDED_BYTES",
    "NO_QUANTIZATION",
    "Level",
    "SessionSettings",
    "Use",
    "create_session",
    "find_thread_limit",
    "folding_entries",
    "import_onnxruntime",
    "refuse_settings_of_models",
]

EXECUTION_PROVIDER: Final = "CPUExecutionProvider"
NO_QUANTIZATION: Final[Mapping[str, str]] = {"session.disable_quant_qdq": "1"}
"""Entries for sessions whose Q and DQ nodes stay as they are."""
FOLDED_BYTES: Final = 64 << 20
"""How many bytes of constants ONNX Runtime may work out in one graph, besides as many as its weights have."""
_FOLDING_ENTRY: Final = "optimization.constant_folding_max_output_size_in_bytes"
_FATAL_ONLY: Final = 4
"""What goes wrong comes back as an error; on the screen it would be said twice."""

_LETS_MODELS_CHOOSE: Final = "ORT_LOAD_CONFIG_FROM_MODEL"

_lock = threading.Lock()
_has_pool = False
"""Whether the process has the shared pool; it cannot be undone."""
_pool_threads: int | None = None
"""How many threads the shared pool was made with; None when others made it."""
_POOL_EXISTS: Final = "already been created"


class Level:
    """How far ONNX Runtime optimises a graph, by the names it gives."""

    NONE: Final = "ORT_DISABLE_ALL"
    EXTENDED: Final = "ORT_ENABLE_EXTENDED"
    """Everything that does not depend on the CPU."""
    ALL: Final = "ORT_ENABLE_ALL"


class Use(Enum):
    """What a session is for, which decides its threads."""

    OPTIMISE = auto()
    """It never runs."""
    WHOLE = auto()
    """It is all there is to run: threads as ONNX Runtime has them."""
    PART = auto()
    """Other steps run in turn with it: its threads rest meanwhile."""


def folding_entries(num_nodes: int, weights_bytes: int) -> dict[str, str]:
    """What keeps ONNX Runtime from working out constants without end; it knows a limit for each of them only."""
    return {_FOLDING_ENTRY: str((FOLDED_BYTES + weights_bytes) // max(num_nodes, 1))}


@dataclass(frozen=True, kw_only=True)
class SessionSettings:
    """How sessions of a provider are made."""

    threads: int = 0
    """Threads of a pool; 0 for one a core."""
    pool: str = "session"
    """``session`` for one pool each, ``process`` for one that all sessions of the process must share."""


def refuse_settings_of_models() -> None:
    """Raise where ONNX Runtime would take the settings of sessions from the models that they are made of."""
    if os.environ.get(_LETS_MODELS_CHOOSE) == "1":
        raise ProviderError(
            f"{_LETS_MODELS_CHOOSE} is set, so ONNX Runtime would heed the settings in a model and not those given",
            where="provider 'onnxruntime'",
            fix="unset it, or choose another provider",
        )


def import_onnxruntime() -> Any:
    """The module, or an error that says how to get it."""
    # Newer ones report over the network what they run, and keep a file of it in the home folder, unless this is set
    # before they are imported. Whoever wants that sets it to 0, or imports onnxruntime first.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    try:
        with UninterruptedImport():
            import onnxruntime
    except ImportError as error:
        raise ProviderError(
            "onnxruntime is not installed",
            where="provider 'onnxruntime'",
            fix="pip install 'dovetail-engine[onnxruntime]'",
        ) from error
    return onnxruntime


def create_session(
    model: bytes | str,
    level: str,
    settings: SessionSettings,
    use: Use,
    *,
    where: str,
    entries: Mapping[str, str] | None = None,
    configure: Callable[[Any], None] | None = None,
    without: Sequence[str] = (),
) -> Any:
    """A session over a model, as bytes or a path.

    Args:
        model: The model.
        level: One of ``Level``.
        settings: Of the provider.
        use: What the session is for.
        where: What an error is about.
        entries: Further configuration.
        configure: Sets what has no configuration entry.
        without: Names of ONNX Runtime's optimisers to leave out.
    """
    refuse_settings_of_models()
    onnxruntime = import_onnxruntime()
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.log_severity_level = _FATAL_ONLY
    options.add_session_config_entry("session.load_model_format", "ONNX")  # whatever its first bytes look like
    for key, value in (entries or {}).items():
        options.add_session_config_entry(key, value)
    if configure is not None:
        configure(options)
    _choose_threads(onnxruntime, options, settings, use)
    try:
        return _open(onnxruntime, model, options, list(without))
    except Exception as error:  # its error classes have no common base but Exception
        raise ProviderError(f"ONNX Runtime does not take a partition: {first_line(error)}", where=where) from error


def _choose_threads(onnxruntime: Any, options: Any, settings: SessionSettings, use: Use) -> None:
    if settings.pool == "process" and use is not Use.OPTIMISE:
        _make_pool(onnxruntime, settings.threads)
    if _has_pool:
        options.use_per_session_threads = False
        return
    options.intra_op_num_threads = 1 if use is Use.OPTIMISE else settings.threads
    if use is Use.PART:
        options.add_session_config_entry("session.force_spinning_stop", "1")


def find_thread_limit(settings: SessionSettings) -> str | None:
    """Why a session does not get the number of threads that was asked for; None when it does."""
    if not _has_pool or settings.threads in (0, _pool_threads):
        return None
    size = "others made" if _pool_threads is None else f"was made with threads={_pool_threads}"
    return f"threads={settings.threads} has no effect: the process has one pool of threads for all, which {size}"


def _make_pool(onnxruntime: Any, threads: int) -> None:
    """Make the pool of the process, once; where others made it, that is the one."""
    global _has_pool, _pool_threads
    with _lock:
        if _has_pool:
            return
        try:
            onnxruntime.set_global_thread_pool_sizes(threads, 1)
            _pool_threads = threads
        except Exception as error:  # its error classes have no common base but Exception
            if _POOL_EXISTS not in str(error):
                raise ProviderError(
                    f"ONNX Runtime makes no pool for the process: {first_line(error)}", where="provider 'onnxruntime'"
                ) from error
        _has_pool = True


def _open(onnxruntime: Any, model: bytes | str, options: Any, without: list[str]) -> Any:
    """Open a session; where others of the process made the shared pool, it is used."""
    global _has_pool
    arguments: dict[str, Any] = {"providers": [EXECUTION_PROVIDER], "enable_fallback": 0}
    if without:
        arguments["disabled_optimizers"] = without
    try:
        return onnxruntime.InferenceSession(model, options, **arguments)
    except Exception as error:
        if not options.use_per_session_threads or "use_per_session_threads" not in str(error):
            raise
        _has_pool = True
        options.use_per_session_threads = False
        return onnxruntime.InferenceSession(model, options, **arguments)
