"""One captured graph of a run, with the operations it was captured from.

ONNX Runtime replays a captured graph without reporting the values of the run, so a graph replayed that way would read
and write the memory of the captured run. Every run therefore passes through ONNX Runtime's executor, which
brings the addresses and shapes of each operation. Operations that equal the captured ones are held back, and the last
of them replays the graph. The first operation that differs ends this: the operations held back are launched, the graph
is dropped, and the run is captured again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from enum import Enum, auto
from typing import Any

import dovetail
from dovetail.provider.devices import CapturedGraph, Stream
from onnxruntime_ep_dovetail.device.shared import BackendDevice

__all__ = ["GraphRecord"]


class _Mode(Enum):
    """Treatment of the operations of a run."""

    IDLE = auto()
    """No run is under way."""
    EAGER = auto()
    """Launched one by one, to warm up."""
    CAPTURE = auto()
    """Recorded by the stream."""
    COMPARE = auto()
    """Held back while they equal the captured ones."""


class GraphRecord:
    """The graph of one id of one thread, from its first warm-up run on.

    Args:
        device: Device that captures.
        stream: Stream of the thread.
    """

    def __init__(self, device: BackendDevice, stream: Stream) -> None:
        self.stream = stream
        self.has_failed = False
        """Whether an operation of the current run raised."""
        self._device = device
        self._mode = _Mode.IDLE
        self._graph: CapturedGraph | None = None
        self._num_runs = 0
        self._contexts: dict[Any, dovetail.ExecutionContext] = {}
        self._ran: set[Any] = set()
        self._operations: list[Hashable] = []
        """Keys of the captured operations, in order."""
        self._held_back: list[Callable[[], object]] = []
        """Operations of the current run that equal the captured ones, not launched yet."""

    @property
    def is_capturing(self) -> bool:
        """Whether work on the stream is recorded and not done."""
        return self._mode is _Mode.CAPTURE

    @property
    def is_captured(self) -> bool:
        """Whether there is a graph to replay."""
        return self._graph is not None

    def get_context(self, partition: Any) -> dovetail.ExecutionContext:
        """Return the context of a partition that belongs to this graph alone."""
        if partition not in self._contexts:
            streams = {self._device.name: self.stream.handle}
            self._contexts[partition] = partition.engine.create_execution_context(streams=streams)
        return self._contexts[partition]

    def begin(self, num_warm_up_runs: int) -> None:
        """Begin a run of this thread.

        Args:
            num_warm_up_runs: Eager runs before a capture.

        Raises:
            ProviderError: The stream cannot be captured.
        """
        self._ran.clear()
        self.has_failed = False
        self._device.begin_recording(self)
        if self._graph is not None:
            self._mode = _Mode.COMPARE
            return
        self._mode = _Mode.EAGER
        if self._num_runs < num_warm_up_runs:
            return
        self._operations.clear()
        try:
            self._device.call("begin_capture", self._device.provider.begin_capture, self.stream)
        except BaseException:
            self._leave()
            raise
        self._mode = _Mode.CAPTURE

    def launch(self, key: Hashable, launch: Callable[[], object], partition: Any = None) -> None:
        """Launch an operation of the current run, or hold it back until the graph is replayed.

        Args:
            key: Everything that the operation depends on: addresses, shapes, and what runs.
            launch: Puts the operation on the stream.
            partition: Partition that runs, for one that does.
        """
        if self._mode is _Mode.COMPARE and self._hold_back(key, launch):
            return
        self.launch_held_back()
        if self._mode is _Mode.CAPTURE:
            self._operations.append(key)
        launch()
        if partition is not None:
            self._ran.add(partition)

    def _hold_back(self, key: Hashable, launch: Callable[[], object]) -> bool:
        """Hold an operation back if it equals the captured one; the last one replays the graph."""
        position = len(self._held_back)
        if position >= len(self._operations) or self._operations[position] != key:
            return False
        self._held_back.append(launch)
        if len(self._held_back) == len(self._operations):
            self._mode = _Mode.EAGER  # a further operation is none of the graph's
            self._held_back.clear()
            self._replay()
        return True

    def launch_held_back(self) -> None:
        """Launch the operations that were held back: the run is not the one that was captured."""
        if self._mode is not _Mode.COMPARE:
            return
        self._mode = _Mode.EAGER
        held_back, self._held_back = self._held_back, []
        self._drop_graph()
        for launch in held_back:
            launch()

    def end(self, *, is_awaited: bool) -> bool:
        """End the run; captured work is done now.

        Args:
            is_awaited: Whether the caller reads the results when this returns.

        Returns:
            Whether the next run with the same values replays the graph.
        """
        was_capturing = self.is_capturing
        try:
            self.launch_held_back()
            self._mode = _Mode.IDLE
            if was_capturing:
                self._end_capture()
            self._num_runs += 1
            if is_awaited:
                self._device.wait(self.stream)
        finally:
            self._leave()
        return self.is_captured and not self.has_failed

    def _end_capture(self) -> None:
        graph = self._device.call("end_capture", self._device.provider.end_capture, self.stream)
        if self.has_failed or self._ran != self._contexts.keys():
            self._device.call("close_graph", graph.close)  # the run ended early: the graph is incomplete
            return
        self._graph = graph
        self._replay()

    def _replay(self) -> None:
        if self._graph is not None:
            self._device.call("replay", self._graph.replay, self.stream)
            self._device.note_work(self.stream)

    def _leave(self) -> None:
        self._mode = _Mode.IDLE
        self._held_back.clear()
        self._device.end_recording()

    def abandon(self) -> None:
        """End a run whose end ONNX Runtime did not report."""
        try:
            if self.is_capturing:
                graph = self._device.call("end_capture", self._device.provider.end_capture, self.stream)
                self._device.call("close_graph", graph.close)
        finally:
            self._leave()

    def _drop_graph(self) -> None:
        """Close the graph; the next runs warm up and capture again."""
        graph, self._graph = self._graph, None
        self._num_runs = 0
        if graph is not None:
            self._device.wait(self.stream)
            self._device.call("close_graph", graph.close)

    def close(self) -> None:
        """Close the graph and the contexts, and free their memory; the stream stays."""
        contexts, self._contexts = self._contexts, {}
        try:
            self._device.wait(self.stream)
            self._drop_graph()
        finally:
            for context in contexts.values():
                context.close()
            self._device.retire(self)
