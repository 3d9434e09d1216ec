"""What the nodes of sessions did: ONNX Runtime writes it to files, which are read once and are gone then."""

from __future__ import annotations

import json
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from dovetail.provider.devices import ProfileEvent

__all__ = ["SessionProfiles"]

_SUFFIX: Final = "_kernel_time"
"""What ONNX Runtime adds to the name of a node where it tells its time."""


class SessionProfiles:
    """The sessions of a provider that note what their nodes do, until they are asked."""

    def __init__(self) -> None:
        import tempfile  # few processes profile, and it brings all of compression with it

        self._folder = tempfile.TemporaryDirectory(prefix="dovetail-", ignore_cleanup_errors=True)
        self._sessions: list[tuple[str, weakref.ref[Any]]] = []

    def configure(self, options: Any) -> None:
        """Have a session that is made with these options note what it does."""
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(self._folder.name) / f"session-{len(self._sessions)}")

    def watch(self, layer: str, session: Any) -> None:
        """Remember a session by the step that it runs."""
        self._sessions.append((layer, weakref.ref(session)))

    def collect(self) -> list[ProfileEvent]:
        """What the nodes of all sessions did; these note nothing more."""
        events: list[ProfileEvent] = []
        for layer, reference in self._sessions:
            session = reference()
            if session is not None:
                events += _collect(layer, session)
        self._sessions.clear()
        return events


def _collect(layer: str, session: Any) -> Iterator[ProfileEvent]:
    origin_us = _as_counter_us(session.get_profiling_start_time_ns())
    path = Path(session.end_profiling())
    entries = json.loads(path.read_bytes())
    path.unlink()
    for entry in entries:
        if entry.get("cat") == "Node" and entry["name"].endswith(_SUFFIX):
            yield ProfileEvent(
                name=entry["name"].removesuffix(_SUFFIX),
                start_us=origin_us + entry["ts"],
                duration_us=entry["dur"],
                layer=layer,
                kind=entry.get("args", {}).get("op_name", ""),
            )


def _as_counter_us(epoch_ns: int) -> float:
    """A time of the system clock, which ONNX Runtime uses, on that of ``time.perf_counter``."""
    return (epoch_ns - (time.time_ns() - time.perf_counter_ns())) / 1e3
