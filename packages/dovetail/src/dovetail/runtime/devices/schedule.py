"""The order of steps that use devices: where the host waits between them, and what is captured.

The host waits before a step of its own reads what a copy from a device wrote, and when a run or the body of control
flow ends. Between two steps of one device nobody waits: the stream keeps their order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from dovetail.plan.manifest import ProgramRecord, StepRecord
from dovetail.provider.calls import call
from dovetail.runtime.devices.capture import Capture, CapturedSteps
from dovetail.runtime.devices.streams import ContextDevices
from dovetail.runtime.devices.uncaptured import UncapturedStep, explain_uncaptured
from dovetail.runtime.steps.base import Step
from dovetail.runtime.steps.copy import CopyStep
from dovetail.runtime.steps.frame import Frame
from dovetail.runtime.steps.loop import Entry, Silence

__all__ = ["Schedule"]


class Schedule:
    """What a run over devices does, waits included; every frame binds it for itself.

    Args:
        program: What runs.
        steps: Its steps, in the same order.
        devices: The streams of the context.
        silence: How kernels are entered.
        places: The values that callers may bring to lie elsewhere in each run; None for a body, which waits at its end
            and in which nothing is captured.
    """

    def __init__(
        self,
        program: ProgramRecord,
        steps: Sequence[Step],
        devices: ContextDevices,
        silence: Silence,
        places: Sequence[int] | None = None,
    ) -> None:
        self._program = program
        self._steps = steps
        self._devices = devices
        self._silence = silence
        self._places = places
        self._waits = self._find_waits()
        self._uncaptured: list[UncapturedStep] = []

    @property
    def uncaptured(self) -> list[UncapturedStep]:
        """The steps of the frame bound last that are launched anew in every run, with the reason."""
        return list(self._uncaptured)

    def bind(self, entries: Sequence[Entry], frame: Frame) -> list[Entry]:
        """The bound steps of a frame with what belongs around them."""
        ordered = list(self._with_captures(entries, frame))
        return ordered if self._places is not None else [*ordered, self._end]

    def bind_singly(self, entries: Sequence[Entry]) -> list[list[Entry]]:
        """Each step for itself, with its waits before it and its work done after it."""
        return [[*map(_wait, waits), entry, self._end] for entry, waits in zip(entries, self._waits, strict=True)]

    # waiting

    def _find_waits(self) -> list[list[CopyStep]]:
        """For each step the copies to the host that must be done before it, and for the end of the program none."""
        pending: dict[int, CopyStep] = {}
        waits: list[list[CopyStep]] = []
        for record, step in zip(self._program.steps, self._steps, strict=True):
            needed = [pending[index] for index in _reads(record) if index in pending]
            # Copies of one device are done in order, so the last one stands for those before it.
            latest = {copy.provider: copy for copy in pending.values() if copy in needed}
            waits.append(list(latest.values()))
            for copy in latest.values():
                copy.is_awaited = True
                pending = _after(pending, copy)
            if isinstance(step, CopyStep) and not step.target_memory:
                pending[step.target] = step
        return waits

    @property
    def _end(self) -> Entry:
        return Entry("the end of the steps", self._finish)

    def _finish(self) -> None:
        """Wait for everything."""
        for name, stream in self._devices.streams():
            call(name, "synchronize_stream", stream.synchronize)

    # capture

    def _with_captures(self, entries: Sequence[Entry], frame: Frame) -> Iterator[Entry]:
        """The steps in order, neighbours that one device can capture as one."""
        self._uncaptured.clear()
        group: list[Entry] = []
        owner: str | None = None
        for record, step, entry, waits in zip(self._program.steps, self._steps, entries, self._waits, strict=True):
            provider = self._find_capturer(record, step, frame)
            if waits or provider != owner:
                yield from self._close(group, owner, frame)
                group, owner = [], provider
            yield from map(_wait, waits)
            if provider is None:
                yield entry
            else:
                group.append(entry)
        yield from self._close(group, owner, frame)

    def _find_capturer(self, record: StepRecord, step: Step, frame: Frame) -> str | None:
        """The provider by which a step can be captured."""
        if self._places is None or not self._devices.capture_graphs:
            return None
        values = [self._program.values[i] for i in (*record.inputs, *record.outputs) if i >= 0]
        reason = explain_uncaptured(record, values, self._devices.providers, is_capturable=step in frame.capturable)
        if reason is not None:
            self._uncaptured.append(UncapturedStep(step=record.name, reason=reason))
        return record.provider if reason is None else None

    def _close(self, group: list[Entry], owner: str | None, frame: Frame) -> Iterator[Entry]:
        provider = None if owner is None else self._devices.providers[owner]
        stream = None if provider is None else self._devices.stream(provider)
        if not group or provider is None or stream is None:
            yield from group
            return
        captured = CapturedSteps(
            group,
            Capture(
                provider=provider,
                stream=stream,
                silence=self._silence,
                find_places=lambda: self._find_places(frame),
                plugins=self._plugins,
                tell=self._leave_out,
            ),
        )
        frame.closers.append(captured.close)
        yield Entry(captured.name, captured.run)

    @cached_property
    def _plugins(self) -> frozenset[str]:
        return frozenset(record.name for record in self._program.steps if record.kind == "plugin")

    def _leave_out(self, step: str, reason: str) -> None:
        left_out = UncapturedStep(step=step, reason=reason)
        if left_out not in self._uncaptured:  # a recording can be spoiled any number of times
            self._uncaptured.append(left_out)

    def _find_places(self, frame: Frame) -> Any:
        """What changes when a value of a frame comes to lie elsewhere: only callers' arrays do."""
        return tuple([frame.values[index].address for index in self._places or ()])


def _wait(copy: CopyStep) -> Entry:
    """Has the host wait for a copy."""
    return Entry(copy.name, lambda: copy.wait())


def _reads(record: StepRecord) -> Iterator[int]:
    yield from record.inputs
    yield from record.shape_inputs
    for body in record.bodies:
        for outside, _ in body.captures:
            yield outside


def _after(pending: dict[int, CopyStep], done: CopyStep) -> dict[int, CopyStep]:
    """What is still pending when a copy is done: copies of other devices, and later ones of its own."""
    kept: dict[int, CopyStep] = {}
    is_later = False
    for index, copy in pending.items():
        if copy.provider != done.provider or is_later:
            kept[index] = copy
        is_later = is_later or copy is done
    return kept
