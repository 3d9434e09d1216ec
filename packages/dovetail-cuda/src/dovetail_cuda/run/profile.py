"""What the device did, launch by launch, told with the layers that each launch was made of.

Where CUPTI is installed it tells of every kernel, in replays of captured graphs too: what is launched has a number, and
the kernels of a graph are joined to launches by the order in which they were captured. Without it timed events go
around each launch that is not in a graph; a run that is watched takes longer then, and its parts do not.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from dovetail.provider.interfaces import ProfileEvent
from dovetail_cuda.node_names import name_node
from dovetail_cuda.run.cupti import KernelTracer, TracedKernel, has_tracer, open_tracer
from dovetail_cuda.run.streams import CudaEvent

if TYPE_CHECKING:
    from dovetail_cuda.run.gpu import Gpu

__all__ = ["LaunchLabel", "LaunchProfile"]

_MOST_EVENTS: Final = 100_000
"""Launches that are kept; what a forgotten profile may hold."""
_MOST_LAYERS: Final = 4

Step = Callable[[int], None]


@dataclass(frozen=True, kw_only=True)
class LaunchLabel:
    """What a launch is called in a profile."""

    kernel: str
    step: str
    """The step of the program that it is a part of."""
    layers: Sequence[str] = ()

    @property
    def name(self) -> str:
        """Its layers, or the kernel where it is part of none."""
        more = f" + {len(self.layers) - _MOST_LAYERS} more" if len(self.layers) > _MOST_LAYERS else ""
        return " + ".join(self.layers[:_MOST_LAYERS]) + more or self.kernel

    @property
    def nodes(self) -> tuple[str, ...]:
        """What the report of the partition calls what it does."""
        return (name_node(self.layers),) if self.layers else ()


@dataclass(frozen=True, kw_only=True)
class _Timed:
    label: LaunchLabel
    stream: int
    before: CudaEvent
    after: CudaEvent


@dataclass(frozen=True, kw_only=True)
class _ClockPair:
    """A moment on both clocks."""

    event: CudaEvent
    host_us: float


GraphLabels = Sequence[LaunchLabel | None]
"""For each kernel of a captured graph, in order, the launch it belongs to; None for those of plugins."""


@dataclass
class LaunchProfile:
    """The launches of one device while somebody watches."""

    gpu: Gpu
    open_tracer: Callable[[], KernelTracer | None] = open_tracer
    has_tracer: Callable[[], bool] = has_tracer
    """Whether there is a tracer to be opened, so that captures note what it may ask for later."""
    is_on: bool = False
    _timed: list[_Timed] = field(default_factory=list)
    _clocks: dict[int, _ClockPair] = field(default_factory=dict)
    _launched: list[GraphLabels] = field(default_factory=list)
    """By the number that CUPTI has of it, what was launched."""
    _captured: dict[int, list[tuple[int, LaunchLabel]]] = field(default_factory=dict)
    """By stream, for each launch of the capture under way, the node of the graph that came last."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self) -> None:
        """Forget what was noted and note from now on."""
        with self._lock:
            self._timed, self._clocks, self._launched, self.is_on = [], {}, [], True
        tracer = self.open_tracer()
        if tracer is not None:
            _ = self.gpu.driver  # CUPTI looks for a context
            tracer.start()

    def stop(self) -> list[ProfileEvent]:
        """What was noted since."""
        if not self.is_on:
            return []
        with self._lock:
            timed, clocks, launched = self._timed, self._clocks, self._launched
            self._timed, self._clocks, self._launched, self.is_on = [], {}, [], False
        self.gpu.driver.synchronize()
        tracer = self.open_tracer()
        if tracer is not None:
            return _join_kernels(tracer.stop(), launched)
        return [_describe_timed(each, clocks[each.stream]) for each in timed]

    # launches

    def run(self, steps: Sequence[Step], labels: Sequence[LaunchLabel], stream: int) -> None:
        """Put the launches of a step on a stream, watched where somebody does."""
        is_captured = self.gpu.is_capturing
        tracer = self.open_tracer() if self.is_on and not is_captured else None
        if is_captured and self.has_tracer():
            self._capture(steps, labels, stream)
        elif is_captured or not self.is_on:
            for step in steps:
                step(stream)
        elif tracer is not None:
            for step, label in zip(steps, labels, strict=True):
                self._trace(tracer, [label], partial(step, stream))
        else:
            self._time(steps, labels, stream)

    def replay(self, labels: GraphLabels, launch: Callable[[], None]) -> None:
        """Launch a captured graph, watched where somebody does."""
        tracer = self.open_tracer() if self.is_on else None
        if tracer is None:
            launch()
        else:
            self._trace(tracer, labels, launch)

    def begin_capture(self, stream: int) -> None:
        """Forget what a capture noted that did not come to its end."""
        self._captured.pop(stream, None)

    def label_graph(self, graph: int, stream: int) -> GraphLabels:
        """Whose each kernel of a graph is that was captured on a stream; nothing where nobody could tell later."""
        notes = self._captured.pop(stream, [])
        ends, found, turn = {node for node, _ in notes}, [], 0
        for node, is_kernel in self.gpu.driver.list_nodes(graph) if notes else ():
            label = notes[turn][1] if turn < len(notes) else None
            found += [label] if is_kernel else []
            turn += node in ends
        return found

    def _capture(self, steps: Sequence[Step], labels: Sequence[LaunchLabel], stream: int) -> None:
        notes, find_newest = self._captured.setdefault(stream, []), self.gpu.driver.find_newest_node
        for step, label in zip(steps, labels, strict=True):
            step(stream)
            notes.append((find_newest(stream), label))

    def _trace(self, tracer: KernelTracer, labels: GraphLabels, launch: Callable[[], None]) -> None:
        with self._lock:
            number = len(self._launched)
            self._launched.append(labels if number < _MOST_EVENTS else [])
        tracer.push(number)
        try:
            launch()
        finally:
            tracer.pop()

    def _time(self, steps: Sequence[Step], labels: Sequence[LaunchLabel], stream: int) -> None:
        self._set_clock(stream)
        before = CudaEvent(self.gpu, stream, is_timed=True)
        for step, label in zip(steps, labels, strict=True):
            step(stream)
            after = CudaEvent(self.gpu, stream, is_timed=True)
            with self._lock:
                if self.is_on and len(self._timed) < _MOST_EVENTS:
                    self._timed.append(_Timed(label=label, stream=stream, before=before, after=after))
            before = after

    def _set_clock(self, stream: int) -> None:
        if stream not in self._clocks:
            event = CudaEvent(self.gpu, stream, is_timed=True)
            event.synchronize()
            self._clocks[stream] = _ClockPair(event=event, host_us=time.perf_counter() * 1e6)


def _describe_timed(timed: _Timed, clock: _ClockPair) -> ProfileEvent:
    return ProfileEvent(
        name=timed.label.name,
        start_us=clock.host_us + timed.before.elapsed_us(clock.event),
        duration_us=timed.after.elapsed_us(timed.before),
        stream=timed.stream,
        layer=timed.label.step,
        kind=timed.label.kernel,
        nodes=timed.label.nodes,
    )


def _join_kernels(kernels: Sequence[TracedKernel], launched: Sequence[GraphLabels]) -> list[ProfileEvent]:
    """Kernels with the labels of what launched them; those of a graph are in the order of its nodes."""
    groups: dict[int | None, list[TracedKernel]] = {}
    for kernel in kernels:
        groups.setdefault(kernel.number, []).append(kernel)
    events = []
    for number, group in groups.items():
        labels = launched[number] if number is not None and number < len(launched) else []
        ordered = sorted(group, key=lambda kernel: kernel.graph_node)
        for place, kernel in enumerate(ordered):
            events.append(_describe_kernel(kernel, _find_label(labels, place, len(ordered))))
    return sorted(events, key=lambda event: event.start_us)


def _find_label(labels: GraphLabels, place: int, count: int) -> LaunchLabel | None:
    """The label of a kernel; one launch may be several kernels."""
    if len(labels) == 1:
        return labels[0]
    return labels[place] if len(labels) == count else None


def _describe_kernel(kernel: TracedKernel, label: LaunchLabel | None) -> ProfileEvent:
    return ProfileEvent(
        name=kernel.name if label is None else label.name,
        start_us=kernel.start_us,
        duration_us=kernel.duration_us,
        stream=kernel.stream,
        layer="" if label is None else label.step,
        kind=kernel.name,
        nodes=() if label is None else label.nodes,
    )
