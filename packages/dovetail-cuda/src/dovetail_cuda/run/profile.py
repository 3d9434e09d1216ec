"""What the device did, launch by launch: timed events around each, told with the layers that the launch was made of.

Launches are timed one by one on their stream, outside of captured graphs; a run that is watched takes longer, and its
parts do not. Times of the device become times of the host by an event of each stream that the host waited for.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from dovetail.provider.interfaces import ProfileEvent
from dovetail_cuda.run.streams import CudaEvent

if TYPE_CHECKING:
    from dovetail_cuda.run.gpu import Gpu

__all__ = ["LaunchLabel", "LaunchProfile"]

_MOST_EVENTS: Final = 100_000
"""Launches that are kept; what a forgotten profile may hold."""
_MOST_LAYERS: Final = 4


@dataclass(frozen=True, kw_only=True)
class LaunchLabel:
    """What a launch is called in a profile."""

    kernel: str
    layers: Sequence[str] = ()

    @property
    def name(self) -> str:
        """Its layers, or the kernel where it is part of none."""
        more = f" + {len(self.layers) - _MOST_LAYERS} more" if len(self.layers) > _MOST_LAYERS else ""
        return " + ".join(self.layers[:_MOST_LAYERS]) + more or self.kernel


@dataclass(frozen=True, kw_only=True)
class _Timed:
    label: LaunchLabel
    step: str
    stream: int
    before: CudaEvent
    after: CudaEvent


@dataclass(frozen=True, kw_only=True)
class _ClockPair:
    """A moment on both clocks."""

    event: CudaEvent
    host_us: float


@dataclass
class LaunchProfile:
    """The launches of one device while somebody watches."""

    gpu: Gpu
    _is_on: bool = False
    _timed: list[_Timed] = field(default_factory=list)
    _anchors: dict[int, _ClockPair] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self) -> None:
        """Forget what was noted and note from now on."""
        with self._lock:
            self._timed, self._anchors, self._is_on = [], {}, True

    def stop(self) -> list[ProfileEvent]:
        """What was noted since."""
        with self._lock:
            timed, anchors = self._timed, self._anchors
            self._timed, self._anchors, self._is_on = [], {}, False
        if timed:
            self.gpu.driver.synchronize()
        return [_describe(each, anchors[each.stream]) for each in timed]

    def run(
        self, steps: Sequence[Callable[[int], None]], labels: Sequence[LaunchLabel], name: str, stream: int
    ) -> None:
        """Put the launches of a step on a stream, timed where somebody watches."""
        if not self._is_on or self.gpu.is_capturing:
            for step in steps:
                step(stream)
            return
        self._anchor(stream)
        before = CudaEvent(self.gpu, stream, is_timed=True)
        for step, label in zip(steps, labels, strict=True):
            step(stream)
            after = CudaEvent(self.gpu, stream, is_timed=True)
            self._note(_Timed(label=label, step=name, stream=stream, before=before, after=after))
            before = after

    def _anchor(self, stream: int) -> None:
        if stream not in self._anchors:
            event = CudaEvent(self.gpu, stream, is_timed=True)
            event.synchronize()
            self._anchors[stream] = _ClockPair(event=event, host_us=time.perf_counter() * 1e6)

    def _note(self, timed: _Timed) -> None:
        with self._lock:
            if self._is_on and len(self._timed) < _MOST_EVENTS:
                self._timed.append(timed)


def _describe(timed: _Timed, anchor: _ClockPair) -> ProfileEvent:
    return ProfileEvent(
        name=timed.label.name,
        start_us=anchor.host_us + timed.before.elapsed_us(anchor.event),
        duration_us=timed.after.elapsed_us(timed.before),
        stream=timed.stream,
        layer=timed.step,
        kind=timed.label.kernel,
    )
