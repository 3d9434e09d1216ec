"""Graph capture: runs that are recorded once on a device and then repeated without ONNX Runtime looking at the graph.

A run with an id is warmed up a few times, captured, and replayed from then on; the id is the run's ``gpu_graph_id``, 0
where it has none, and -1 keeps a run out of all this. ONNX Runtime does the warming up and the capture within the first
run that a caller asks for. A graph belongs to the thread that captured it, and has contexts, memory and a stream of its
own: nothing that it writes to is ever given to anybody else while it lives.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final

import dovetail
from dovetail import UsageError
from dovetail.provider.devices import CapturedGraph, Stream
from dovetail.provider.interfaces import Provider
from dovetail.provider.loader import get_provider, split_id
from onnxruntime_ep_dovetail.abi import OrtRuntime, read_text
from onnxruntime_ep_dovetail.device.backends import Backend
from onnxruntime_ep_dovetail.device.shared import BackendDevice, get_device
from onnxruntime_ep_dovetail.library import compute
from onnxruntime_ep_dovetail.session.options import EpOptions

__all__ = ["CAPTURE_SLOTS", "GraphCapture", "GraphRecord"]

CAPTURE_SLOTS: Final = (
    "OnRunStart",
    "OnRunEnd",
    "IsGraphCaptureEnabled",
    "IsGraphCaptured",
    "ReplayGraph",
    "ReleaseCapturedGraph",
    "GetGraphCaptureNodeAssignmentPolicy",
)
"""What only sessions with capture have: ONNX Runtime calls some of them in every run."""
_KEY: Final = b"gpu_graph_id"
_SKIP: Final = -1
_CAPTURES: Final = 26
_ALL_NODES_ON_EP: Final = 0


class GraphRecord:
    """One graph of one thread, from its first warm-up run on."""

    def __init__(self, device: BackendDevice, stream: Stream) -> None:
        self.stream = stream
        self.is_capturing = False
        self.has_failed = False
        """Whether the run that goes on failed in one of our partitions."""
        self.graph: CapturedGraph | None = None
        self.num_runs = 0
        self._device = device
        self._contexts: dict[Any, dovetail.ExecutionContext] = {}
        self._ran: set[Any] = set()
        self._is_active = False
        self._is_released = False

    def context_of(self, partition: Any) -> dovetail.ExecutionContext:
        """The context that a partition has in this graph and nowhere else."""
        if partition not in self._contexts:
            streams = {self._device.name: self.stream.handle}
            self._contexts[partition] = partition.engine.create_execution_context(streams=streams)
        return self._contexts[partition]

    def note_run(self, partition: Any) -> None:
        """Note that a partition ran."""
        self._ran.add(partition)

    def begin(self, warm_up_runs: int) -> None:
        """Begin a run of this thread: a capture when there were runs enough."""
        self._ran.clear()
        self.has_failed = False
        self._is_active = True
        self._device.begin_recording(self)
        try:
            if self.num_runs >= warm_up_runs:
                self._device.call("begin_capture", self._device.provider.begin_capture, self.stream)
                self.is_capturing = True
        except BaseException:
            self._leave()
            raise

    def end(self, *, is_awaited: bool) -> None:
        """End the run; what was captured has not been done, so it is done now."""
        was_capturing, self.is_capturing = self.is_capturing, False
        try:
            if was_capturing:
                self._end_capture()
            self.num_runs += 1
            if is_awaited:
                self._device.wait(self.stream)
        finally:
            self._leave()

    def _end_capture(self) -> None:
        graph = self._device.call("end_capture", self._device.provider.end_capture, self.stream)
        if self.has_failed or self._ran != self._contexts.keys():
            self._device.call("close_graph", graph.close)  # the run broke off: a part of it is no graph
            return
        self.graph = graph
        self.replay()

    def replay(self) -> None:
        """Do again what was captured."""
        if self.graph is not None:
            self._device.call("replay", self.graph.replay, self.stream)
            self._device.note_work(self.stream)

    def _leave(self) -> None:
        self._device.end_recording()
        self._is_active = False
        if self._is_released:
            self.close()

    def release(self) -> None:
        """Give everything back, after the run that goes on if there is one."""
        self._is_released = True
        if not self._is_active:
            self.close()

    def close(self) -> None:
        """Give everything back."""
        graph, self.graph = self.graph, None
        contexts, self._contexts = self._contexts, {}
        try:
            self._device.wait(self.stream)
            if graph is not None:
                self._device.call("close_graph", graph.close)
        finally:
            for context in contexts.values():
                context.close()
            self._device.close_stream(self.stream)
            self._device.retire(self)


class GraphCapture:
    """What an execution provider does for graph capture."""

    runtime: OrtRuntime
    address: int
    backend: Backend
    options: EpOptions

    @cached_property
    def own_options(self) -> Mapping[str, str] | None:
        """The session's own options of the back end; None where it has none."""
        own, (name, _) = self.options.provider_options, split_id(self.backend.name)
        return own.get(self.backend.name, own.get(name))

    @cached_property
    def own_provider(self) -> Provider | None:
        """The back end with these options, which name the queues of its work."""
        return None if self.own_options is None else get_provider(self.backend.name, self.own_options)

    def start_graph_capture(self, runtime: OrtRuntime) -> None:
        """Get ready, before ONNX Runtime asks for anything.

        Raises:
            UsageError: The back end or this ONNX Runtime cannot capture.
        """
        self._records: dict[tuple[int, int], GraphRecord] = {}
        self._records_lock = threading.Lock()
        if not self.options.graph_capture:
            return
        if runtime.version < _CAPTURES:
            raise UsageError(
                f"ONNX Runtime captures graphs of plugins from 1.{_CAPTURES} on",
                where="option graph_capture",
                got=runtime.version_text,
            )
        if not self.backend.has_device_memory or not self.backend.provider.can_capture:
            raise UsageError(
                f"back end '{self.backend.name}' captures no graphs",
                where="option graph_capture",
                fix="set graph_capture=0, or give the session a device that can",
            )

    def is_graph_capture_enabled(self) -> bool:
        """Whether the session asked for it."""
        return self.options.graph_capture

    def get_graph_capture_node_assignment_policy(self) -> int:
        """Every node must be ours: what the host does in between cannot be replayed."""
        return _ALL_NODES_ON_EP

    def on_run_start(self, run_options: int) -> None:
        """Have the work of this thread go to its graph."""
        if not self.options.graph_capture:
            return
        compute.note_run_start(self.address, run_options)
        graph_id = self._read_id(run_options)
        if graph_id != _SKIP:
            self._find_record(graph_id).begin(self.options.capture_after_runs)

    def on_run_end(self, _run_options: int, is_awaited: bool) -> None:
        """End what ``on_run_start`` began."""
        record = get_device(self.backend.name).recording if self.options.graph_capture else None
        try:
            if record is not None:
                record.end(is_awaited=is_awaited)
        finally:
            compute.note_run_end(self.address)

    def _read_id(self, run_options: int) -> int:
        text = read_text(self.runtime.api.GetRunConfigEntry(run_options, _KEY)) or "0"
        try:
            return int(text)
        except ValueError:
            raise UsageError("not a number", where="run option gpu_graph_id", got=text) from None

    def _find_record(self, graph_id: int) -> GraphRecord:
        key = (threading.get_ident(), graph_id)
        if key not in self._records:
            device = get_device(self.backend.name)
            stream = device.create_stream(self.own_provider)
            if stream is None:
                raise UsageError(f"back end '{device.name}' has no streams", where="option graph_capture")
            with self._records_lock:
                self._records[key] = GraphRecord(device, stream)
        return self._records[key]

    def is_graph_captured(self, graph_id: int) -> bool:
        """Whether runs of this thread with the id are replays."""
        record = self._records.get((threading.get_ident(), graph_id))
        return record is not None and record.graph is not None

    def replay_graph(self, graph_id: int) -> None:
        """Do again what this thread captured; ONNX Runtime asks for a wait by itself."""
        self._records[threading.get_ident(), graph_id].replay()

    def release_captured_graph(self, graph_id: int) -> None:
        """Forget a graph, whichever threads captured it."""
        with self._records_lock:
            keys = [key for key in self._records if key[1] == graph_id]
            records = [self._records.pop(key) for key in keys]
        for record in records:
            record.release()

    def close_graphs(self) -> None:
        """Forget all graphs: the session ends."""
        for graph_id in {key[1] for key in self._records}:
            self.release_captured_graph(graph_id)
