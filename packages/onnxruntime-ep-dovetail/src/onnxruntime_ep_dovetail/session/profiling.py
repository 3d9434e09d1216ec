"""Dovetail's layers in ONNX Runtime's trace.

ONNX Runtime tells a profiler when something of its own starts and stops on a thread; what layers report on that thread
in between belongs to it. A profiler lives as long as the session's, or as one run. While there is any, the session's
partitions run layer by layer with a clock around each.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import dovetail
from dovetail.provider.devices import ProfileEvent
from onnxruntime_ep_dovetail.abi import CString, NativeObject, OrtRuntime, read_text, write_pointer
from onnxruntime_ep_dovetail.library import compute

if TYPE_CHECKING:
    from onnxruntime_ep_dovetail.session.partition import Partition

__all__ = ["LayerProfiler", "Profiling", "ProfilingRoute"]

_KERNEL: Final = 2
"""The category of an event that is work of a device, by ONNX Runtime's numbers."""


@dataclass(frozen=True, kw_only=True)
class _TimeSpan:
    """When something ran, on the clock of ``time.perf_counter_ns``."""

    name: str
    start_ns: int
    end_ns: int
    thread: int
    facts: Mapping[str, str] = field(default_factory=dict)


class LayerClock(dovetail.IProfiler):
    """Told the times of a partition's layers; passes them to whoever listens on the thread."""

    def __init__(self, partition: Partition, profiling: Profiling) -> None:
        self._profiling = weakref.ref(profiling)
        programs = partition.engine.manifest.programs
        self._steps = {step.name: step for program in programs for step in program.steps}

    def report_layer_time(self, layer_name: str, ms: float) -> None:
        """Nothing: spans say more."""

    def report_layer_span(self, layer_name: str, start_ns: int, end_ns: int) -> None:
        """Take when a layer ran."""
        step = self._steps.get(layer_name)
        op, provider = (step.op, step.provider) if step is not None else ("", "")
        self._tell(f"{layer_name} ({op})", start_ns, end_ns, {"layer": layer_name, "op_name": op, "provider": provider})

    def report_device_event(self, provider: str, event: ProfileEvent) -> None:
        """Take something that a device did."""
        start_ns, end_ns = int(event.start_us * 1e3), int((event.start_us + event.duration_us) * 1e3)
        facts = {"layer": event.layer, "op_name": event.kind, "provider": provider, "stream": str(event.stream)}
        self._tell(event.name, start_ns, end_ns, facts)

    def _tell(self, name: str, start_ns: int, end_ns: int, facts: dict[str, str]) -> None:
        profiling = self._profiling()
        if profiling is not None:
            thread = threading.get_native_id()
            span = _TimeSpan(name=name, start_ns=start_ns, end_ns=end_ns, thread=thread, facts=facts)
            for profiler in profiling.listeners():
                profiler.take(span)


class Profiling:
    """The profilers of one session and the partitions that they watch."""

    def __init__(self) -> None:
        self.has_layers = True
        """Whether layers are timed; without that a trace costs next to nothing and shows partitions only."""
        self._profilers: set[LayerProfiler] = set()
        self._frames: weakref.WeakKeyDictionary[Any, LayerClock] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()

    def watch(self, partition: Partition) -> Callable[[], Any]:
        """Watch a partition from now on; gives what makes its frames."""
        clock = LayerClock(partition, self)

        def new_frame() -> Any:
            frame = partition.new_frame()
            if hasattr(frame, "profile"):
                with self._lock:
                    self._frames[frame] = clock
                    frame.profile(clock if self._is_timed else None)
            return frame

        return new_frame

    @property
    def _is_timed(self) -> bool:
        return bool(self._profilers) and self.has_layers

    def add(self, profiler: LayerProfiler) -> None:
        """Begin to tell a profiler."""
        with self._lock:
            self._profilers.add(profiler)
        self.refresh()

    def remove(self, profiler: LayerProfiler) -> None:
        """Stop telling a profiler."""
        with self._lock:
            self._profilers.discard(profiler)
        self.refresh()

    def refresh(self) -> None:
        """Have contexts run with or without clocks, as is asked now."""
        with self._lock:
            for frame, clock in list(self._frames.items()):
                frame.profile(clock if self._is_timed else None)

    def listeners(self) -> Iterator[LayerProfiler]:
        """The profilers in whose events this thread is."""
        return (profiler for profiler in list(self._profilers) if profiler.is_open())


class LayerProfiler(NativeObject):
    """What ONNX Runtime calls to profile a session or a run."""

    struct = "OrtEpProfilerImpl"

    def __init__(self, runtime: OrtRuntime, profiling: Profiling) -> None:
        self._profiling = profiling
        self._offset_ns = 0
        self._open: dict[tuple[int, int], tuple[int, list[_TimeSpan]]] = {}
        """Start and layers of each open event, by the number of its thread, which is never reused, and its own."""
        self._spans: list[_TimeSpan] = []
        super().__init__(runtime)

    def is_open(self) -> bool:
        """Whether this thread is in an event."""
        thread = compute.thread_number()
        return any(owner == thread for owner, _ in list(self._open))

    def take(self, span: _TimeSpan) -> None:
        """Note what a layer did on this thread: it belongs to the innermost event."""
        own = compute.thread_number()
        mine = [spans for (thread, _), (_, spans) in list(self._open.items()) if thread == own]
        mine[-1].append(span)

    def start_profiling(self, offset_ns: int) -> None:
        """Begin; the argument is how long ONNX Runtime's own clock has run."""
        self._offset_ns = offset_ns - time.perf_counter_ns()
        self._profiling.add(self)

    def start_event(self, number: int) -> None:
        """Something starts on this thread."""
        self._open[compute.thread_number(), number] = (time.perf_counter_ns(), [])

    def stop_event(self, number: int, event: int) -> None:
        """It stops; if layers ran in it, it was one of our partitions."""
        thread, end_ns = threading.get_native_id(), time.perf_counter_ns()
        start_ns, layers = self._open.pop((compute.thread_number(), number), (0, []))
        if layers:
            name = self._name(event).removesuffix("_kernel_time")
            facts = {"layers": str(len(layers)), "provider": "dovetail"}
            whole = _TimeSpan(name=f"partition {name}", start_ns=start_ns, end_ns=end_ns, thread=thread, facts=facts)
            self._spans += [whole, *(_within(span, name) for span in layers)]

    def _name(self, event: int) -> str:
        place = ctypes.c_void_p()
        self.runtime.ep_api.ProfilingEvent_GetName(event, ctypes.addressof(place))
        return read_text(place.value)

    def end_profiling(self, container: int) -> None:
        """Stop and hand over everything."""
        self._profiling.remove(self)
        spans, self._spans = self._spans, []
        for span in spans:
            self._add(container, span)

    def _add(self, container: int, span: _TimeSpan) -> None:
        api, event = self.runtime.ep_api, ctypes.c_void_p()
        texts = [[CString(text) for text in group] for group in (span.facts.keys(), span.facts.values())]
        arrays = [(ctypes.c_void_p * len(group))(*(text.address for text in group)) for group in texts]
        api.CreateProfilingEvent(
            _KERNEL,
            os.getpid(),
            span.thread,
            span.name.encode(),
            (self._offset_ns + span.start_ns) // 1000,
            (span.end_ns - span.start_ns) // 1000,
            *(ctypes.addressof(array) for array in arrays),
            len(span.facts),
            ctypes.addressof(event),
        )
        try:
            events = (ctypes.c_void_p * 1)(event.value)
            api.ProfilingEventsContainer_AddEvents(container, ctypes.addressof(events), 1)
        finally:
            api.ReleaseProfilingEvent(event.value)

    def release(self) -> None:
        """ONNX Runtime is done with it, perhaps without having ended it."""
        self._profiling.remove(self)
        super().release()


def _within(span: _TimeSpan, partition: str) -> _TimeSpan:
    facts = {"partition": partition, **span.facts}
    return _TimeSpan(name=span.name, start_ns=span.start_ns, end_ns=span.end_ns, thread=span.thread, facts=facts)


class ProfilingRoute:
    """The part of the execution provider that profiles; it has a runtime."""

    runtime: OrtRuntime

    @cached_property
    def profiling(self) -> Profiling:
        """The profilers of this session."""
        return Profiling()

    def create_profiler(self, target: int) -> None:
        """A profiler for the session or for one run."""
        write_pointer(target, LayerProfiler(self.runtime, self.profiling).address)
