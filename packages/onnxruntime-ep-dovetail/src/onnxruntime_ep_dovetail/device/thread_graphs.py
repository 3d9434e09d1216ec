"""The captured graphs of one thread in one session, and their stream."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Final

from dovetail import DovetailError
from dovetail.provider.devices import Stream
from onnxruntime_ep_dovetail.device.graph_record import GraphRecord
from onnxruntime_ep_dovetail.device.shared import BackendDevice

__all__ = ["MAX_GRAPHS", "ThreadGraphs"]

MAX_GRAPHS: Final = 32
"""Graphs that a thread keeps in a session. Each has contexts and memory of its own, so ids that a program stops using
must not add up; a graph that is needed again after it was released is captured again."""


class ThreadGraphs:
    """Graphs by id, the least recently used first.

    One stream serves all of them, because a thread runs a session once at a time. Another thread may release a graph
    while a run is under way; it is then closed when the run ends.

    Args:
        device: Device that captures.
        stream: Stream for all runs of the thread; closed with this object.
    """

    def __init__(self, device: BackendDevice, stream: Stream) -> None:
        self._device = device
        self._stream = stream
        self._records: dict[int, GraphRecord] = {}
        self._current: GraphRecord | None = None
        self._leaving: list[GraphRecord] = []
        self._captured_id: int | None = None
        """Id of the run that has just ended, if its graph is captured and ONNX Runtime has not asked about it yet."""
        self._is_closed = False
        self._lock = threading.RLock()

    def begin(self, graph_id: int, num_warm_up_runs: int) -> None:
        """Begin a run.

        Args:
            graph_id: Id of the graph.
            num_warm_up_runs: Eager runs before a capture.

        Raises:
            ProviderError: The stream cannot be captured.
        """
        with self._lock:
            if self._current is not None:  # ONNX Runtime does not report the end of a run that it cannot set up
                self._current.abandon()
                self._finish_run()
            self._captured_id = None
            record = self._records.pop(graph_id, None) or GraphRecord(self._device, self._stream)
            self._records[graph_id] = record
            while len(self._records) > MAX_GRAPHS:
                self._records.pop(next(iter(self._records))).close()
            self._current = record
        try:
            record.begin(num_warm_up_runs)
        except BaseException:
            self._finish_run()
            raise

    def end(self, *, is_awaited: bool) -> None:
        """End the run that ``begin`` began, if there is one."""
        record = self._current
        if record is None:
            return
        try:
            is_captured = record.end(is_awaited=is_awaited)
        finally:
            self._finish_run()
        with self._lock:
            found = [graph_id for graph_id, known in self._records.items() if known is record]
            self._captured_id = found[0] if found and is_captured else None

    def _finish_run(self) -> None:
        with self._lock:
            self._current = None
            leaving, self._leaving = self._leaving, []
            for record in leaving:
                record.close()
            if self._is_closed:
                self._close_all()

    def pop_captured(self, graph_id: int) -> bool:
        """Return whether the run that has just ended captured or replayed a graph; True once for each run."""
        with self._lock:
            captured_id, self._captured_id = self._captured_id, None
            return captured_id == graph_id

    def release(self, graph_id: int) -> None:
        """Release one graph, after the run that is under way."""
        with self._lock:
            record = self._records.pop(graph_id, None)
            if record is None:
                return
            if self._captured_id == graph_id:
                self._captured_id = None
            if self._current is None:
                record.close()
            else:
                self._leaving.append(record)

    def close(self) -> None:
        """Release all graphs and the stream, after the run that is under way."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            if self._current is None:
                self._close_all()

    def _close_all(self) -> None:
        records, self._records = self._records, {}
        for record in records.values():
            with suppress(DovetailError):  # a device that fails keeps its memory; the others are closed all the same
                record.close()
        self._device.close_stream(self._stream)
