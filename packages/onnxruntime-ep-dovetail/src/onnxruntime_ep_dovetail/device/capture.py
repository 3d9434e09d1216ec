"""Graph capture in sessions: runs with an id are warmed up, captured and replayed.

The id is the run option ``gpu_graph_id``: 0 by default, and -1 for a run that takes no part. ONNX Runtime repeats the
first run of an id until it is captured. A graph belongs to the thread that captured it and to the addresses and shapes
of that run; a run with others captures again. It has contexts and memory of its own, which nothing else uses while it
exists. Graphs are released with their thread, with their session, when ONNX Runtime releases the id, and when a thread
uses more than `MAX_GRAPHS` other ids.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import cached_property
from typing import Final

from dovetail import UsageError
from dovetail.provider.interfaces import Provider
from dovetail.provider.loader import get_provider, split_id
from onnxruntime_ep_dovetail.abi import OrtRuntime, read_text
from onnxruntime_ep_dovetail.device.backends import Backend
from onnxruntime_ep_dovetail.device.shared import get_device
from onnxruntime_ep_dovetail.device.thread_graphs import ThreadGraphs
from onnxruntime_ep_dovetail.device.threads import close_with_thread
from onnxruntime_ep_dovetail.library import compute
from onnxruntime_ep_dovetail.session.options import EpOptions

__all__ = ["CAPTURE_SLOTS", "GraphCapture"]

CAPTURE_SLOTS: Final = (
    "OnRunStart",
    "OnRunEnd",
    "IsGraphCaptureEnabled",
    "IsGraphCaptured",
    "ReplayGraph",
    "ReleaseCapturedGraph",
    "GetGraphCaptureNodeAssignmentPolicy",
)
"""Functions of sessions with capture only: ONNX Runtime calls some of them in every run."""
_KEY: Final = b"gpu_graph_id"
_SKIP: Final = -1
_CAPTURES: Final = 26
_ALL_NODES_ON_EP: Final = 0


class GraphCapture:
    """Graph capture of an execution provider."""

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
        self._threads: dict[int, ThreadGraphs] = {}
        """By number of the thread, which no later thread has."""
        self._threads_lock = threading.Lock()
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
        """Send the work of this thread to its graph."""
        if not self.options.graph_capture:
            return
        compute.note_run_start(self.address, run_options)
        graph_id = self._read_id(run_options)
        if graph_id != _SKIP:
            self._get_thread().begin(graph_id, self.options.capture_after_runs)

    def on_run_end(self, _run_options: int, is_awaited: bool) -> None:
        """End the run that ``on_run_start`` began."""
        thread = self._threads.get(compute.thread_number()) if self.options.graph_capture else None
        try:
            if thread is not None:
                thread.end(is_awaited=is_awaited)
        finally:
            compute.note_run_end(self.address)

    def _read_id(self, run_options: int) -> int:
        text = read_text(self.runtime.api.GetRunConfigEntry(run_options, _KEY)) or "0"
        try:
            return int(text)
        except ValueError:
            raise UsageError("not a number", where="run option gpu_graph_id", got=text) from None

    def _get_thread(self) -> ThreadGraphs:
        """Return the graphs of this thread."""
        number = compute.thread_number()
        if number not in self._threads:
            self._release_ended_threads()
            device = get_device(self.backend.name)
            stream = device.create_stream(self.own_provider)
            if stream is None:
                raise UsageError(f"back end '{device.name}' has no streams", where="option graph_capture")
            graphs = ThreadGraphs(device, stream)
            with self._threads_lock:
                self._threads[number] = graphs
            close_with_thread(graphs)
        return self._threads[number]

    def _release_ended_threads(self) -> None:
        with self._threads_lock:
            ended = [number for number in self._threads if not compute.is_thread_alive(number)]
            graphs = [self._threads.pop(number) for number in ended]
        for each in graphs:
            each.close()

    def is_graph_captured(self, graph_id: int) -> bool:
        """Return whether the run that has just ended needs no further one to be captured.

        ONNX Runtime asks before each run too, and replays the graph if the answer is True. It does not report the
        values of that run, so the answer is False then, and the run goes through ONNX Runtime's executor.
        """
        thread = self._threads.get(compute.thread_number())
        return thread is not None and thread.pop_captured(graph_id)

    def replay_graph(self, graph_id: int) -> None:
        """Refuse to replay without the values of the run.

        Raises:
            UsageError: Always. ONNX Runtime gets here only after a run that it failed without asking whether the graph
                was captured.
        """
        raise UsageError(
            "the previous run of this thread failed after its graph was replayed",
            where=f"graph capture, gpu_graph_id {graph_id}",
            fix="run again",
        )

    def release_captured_graph(self, graph_id: int) -> None:
        """Release the graphs of an id in all threads."""
        self._release_ended_threads()
        for thread in self._list_threads():
            thread.release(graph_id)

    def close_graphs(self) -> None:
        """Release all graphs: the session ends."""
        with self._threads_lock:
            threads, self._threads = self._threads, {}
        for thread in threads.values():
            thread.close()

    def _list_threads(self) -> list[ThreadGraphs]:
        with self._threads_lock:
            return list(self._threads.values())
