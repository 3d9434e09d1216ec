"""Sessions of ONNX Runtime with Dovetail in them, made so that nothing passes by falling back."""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import onnx
import onnxruntime as ort
import pytest

import onnxruntime_ep_dovetail
from onnxruntime_ep_dovetail.abi import count_live

__all__ = [
    "EP",
    "RUNTIME",
    "assigned",
    "count_sessions",
    "devices",
    "dovetail_session",
    "reference_session",
    "refuse",
    "register",
    "session_options",
]

EP = onnxruntime_ep_dovetail.get_ep_name()
RUNTIME = tuple(int(part) for part in ort.__version__.split(".")[:2])
"""The version of ONNX Runtime that is under test, to compare with."""
needs_bodies = pytest.mark.skipif(
    RUNTIME < (1, 27), reason="ONNX Runtime hands over what bodies read from around them from 1.27 on"
)
needs_names = pytest.mark.skipif(
    RUNTIME < (1, 25), reason="ONNX Runtime finds the execution provider of a library by name from 1.25 on"
)

Model = onnx.ModelProto | bytes | str | os.PathLike[str]


def register(name: str = "dovetail") -> str:
    """Register the library under a name, and return it."""
    ort.register_execution_provider_library(name, onnxruntime_ep_dovetail.get_library_path())
    return name


def devices(backend: str = "cpu") -> list[Any]:
    """The devices of one of Dovetail's back ends."""
    found = [device for device in ort.get_ep_devices() if device.ep_name == EP]
    return [device for device in found if device.ep_metadata["backend"] == backend][:1]


def session_options(*, fallback: bool, entries: Mapping[str, str] | None = None) -> ort.SessionOptions:
    """Options that record who runs what, and without ``fallback`` refuse nodes left to the CPU execution provider."""
    made = ort.SessionOptions()
    made.log_severity_level = 3
    made.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    made.add_session_config_entry("session.disable_cpu_ep_fallback", str(int(not fallback)))
    for key, value in (entries or {}).items():
        made.add_session_config_entry(key, value)
    return made


def dovetail_session(
    model: Model,
    *,
    fallback: bool | None = None,
    by_name: bool = False,
    backend: str = "cpu",
    entries: Mapping[str, str] | None = None,
    options: ort.SessionOptions | None = None,
    **ep_options: str,
) -> ort.InferenceSession:
    """A session with Dovetail before the CPU execution provider.

    Args:
        model: A model, its bytes or its file.
        fallback: Whether nodes may stay with the CPU execution provider; by default not with ``claim="all"``.
        by_name: Name the execution provider instead of a device of it.
        backend: Which of Dovetail's back ends the device stands for.
        entries: More entries of the session's configuration.
        options: The options to start from, in place of fresh ones.
        **ep_options: Options of the execution provider.
    """
    may_fall_back = ep_options.get("claim") != "all" if fallback is None else fallback
    if options is None:
        options = session_options(fallback=may_fall_back, entries=entries)
    if by_name:
        return ort.InferenceSession(_source(model), options, providers=[(EP, ep_options)])
    options.add_provider_for_devices(devices(backend), ep_options)
    return ort.InferenceSession(_source(model), options)


def reference_session(model: Model) -> ort.InferenceSession:
    """A session of ONNX Runtime's own CPU execution provider."""
    options = session_options(fallback=True)
    return ort.InferenceSession(_source(model), options, providers=["CPUExecutionProvider"])


def count_sessions() -> dict[str, int]:
    """What ONNX Runtime holds of sessions, by struct; operators and factories live as long as the registration."""
    return {struct: n for struct, n in count_live().items() if struct not in ("OrtCustomOp", "OrtEpFactory")}


def refuse(text: str, make: Callable[[], Any]) -> None:
    """A session cannot be made, ONNX Runtime says why in its own words or ours, and nothing of the attempt is left."""
    gc.collect()  # the failures of earlier tests may hold sessions
    before, kind, said = count_sessions(), None, ""
    try:
        make()
    except Exception as error:  # noqa: BLE001 - which one it is is checked below
        kind, said = type(error), str(error)
    assert kind is not None, "a session was made"
    # RuntimeError and EPFail have ONNX Runtime's Python make the session again without us.
    assert kind.__module__.startswith("onnxruntime"), (kind, said)
    assert kind.__name__ != "EPFail", said
    assert re.search(text, said), said
    assert count_sessions() == before


def assigned(session: ort.InferenceSession) -> dict[str, list[str]]:
    """The operators that each execution provider got, by its name, sorted."""
    found: dict[str, list[str]] = {}
    for part in session.get_provider_graph_assignment_info():
        found.setdefault(part.ep_name, []).extend(node.op_type for node in part.get_nodes())
    return {name: sorted(ops) for name, ops in found.items()}


def _source(model: Model) -> bytes | str:
    if isinstance(model, onnx.ModelProto):
        return model.SerializeToString()
    return model if isinstance(model, bytes) else str(Path(model))
