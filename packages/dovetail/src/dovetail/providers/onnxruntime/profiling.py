"""What the nodes of sessions did: ONNX Runtime writes it to files, which are read once and are gone then."""

from __future__ import annotations

import json
import time
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from dovetail.provider.devices import ProfileEvent
from dovetail.providers.onnxruntime.origins import GraphNode, read_nodes, trace_origins

__all__ = ["SessionProfiles"]

_SUFFIX: Final = "_kernel_time"
"""What ONNX Runtime adds to the name of a node where it tells its time."""
_WEIGHTS_ENTRY: Final = "session.optimized_model_external_initializers_file_name"
_MAX_WEIGHTS_BYTES: Final = 1 << 30
"""ONNX Runtime writes all weights with a graph; above this the nodes of a session are not traced."""


class SessionProfiles:
    """The sessions of a provider that note what their nodes do, until they are asked."""

    def __init__(self) -> None:
        import tempfile  # few processes profile, and it brings all of compression with it

        self._folder = tempfile.TemporaryDirectory(prefix="dovetail-", ignore_cleanup_errors=True)
        self._sessions: list[tuple[str, weakref.ref[Any], _RunTimeNodes]] = []

    def configure(self, options: Any, *, weights_bytes: int) -> None:
        """Have a session that is made with these options note what it does, and write down its graph."""
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(self._folder.name) / f"session-{len(self._sessions)}")
        if weights_bytes <= _MAX_WEIGHTS_BYTES:
            options.optimized_model_filepath = str(self._graph_path)
            options.add_session_config_entry(_WEIGHTS_ENTRY, "graph.data")

    @property
    def _graph_path(self) -> Path:
        return Path(self._folder.name) / "graph.onnx"

    def watch(self, layer: str, session: Any, payload: bytes | memoryview) -> None:
        """Remember a session by the step that it runs, and what its nodes were in the payload of the step."""
        nodes = _RunTimeNodes(self._take_graph(), read_nodes(payload))
        self._sessions.append((layer, weakref.ref(session), nodes))

    def _take_graph(self) -> list[GraphNode]:
        path = self._graph_path
        nodes = read_nodes(path.read_bytes()) if path.exists() else []
        for written in (path, path.with_name("graph.data")):
            written.unlink(missing_ok=True)
        return nodes

    def collect(self) -> list[ProfileEvent]:
        """What the nodes of all sessions did; these note nothing more."""
        events: list[ProfileEvent] = []
        for layer, reference, nodes in self._sessions:
            session = reference()
            if session is not None:
                events += _collect(layer, session, nodes)
        self._sessions.clear()
        return events


class _RunTimeNodes:
    """What the nodes that a session runs were in the payload; several may have one name."""

    def __init__(self, graph: Sequence[GraphNode], payload: Sequence[GraphNode]) -> None:
        self._origins: dict[str, list[tuple[str, ...]]] = {}
        for node, found in zip(graph, trace_origins(graph, payload), strict=True):
            names = tuple(payload[number].name or payload[number].outputs[0] for number in found)
            self._origins.setdefault(node.name, []).append(names)
        self._indices: dict[str, dict[object, None]] = {}

    def find(self, name: str, index: object) -> tuple[str, ...]:
        """The nodes that one by this name and number does; numbers of one name are met in the order of the graph."""
        known = self._origins.get(name, [])
        met = self._indices.setdefault(name, {})
        met.setdefault(index)
        position = list(met).index(index)
        return known[position] if position < len(known) else ()


def _collect(layer: str, session: Any, nodes: _RunTimeNodes) -> Iterator[ProfileEvent]:
    origin_us = _as_counter_us(session.get_profiling_start_time_ns())
    path = Path(session.end_profiling())
    entries = json.loads(path.read_bytes())
    path.unlink()
    for entry in entries:
        if entry.get("cat") == "Node" and entry["name"].endswith(_SUFFIX):
            name, args = entry["name"].removesuffix(_SUFFIX), entry.get("args", {})
            yield ProfileEvent(
                name=name,
                start_us=origin_us + entry["ts"],
                duration_us=entry["dur"],
                layer=layer,
                kind=args.get("op_name", ""),
                nodes=nodes.find(name, args.get("node_index")),
                thread=entry.get("tid", 0),
            )


def _as_counter_us(epoch_ns: int) -> float:
    """A time of the system clock, which ONNX Runtime uses, on that of ``time.perf_counter``."""
    return (epoch_ns - (time.time_ns() - time.perf_counter_ns())) / 1e3
