"""The order of a run that uses devices: where the host waits, what is captured, and that all is done at the end.

The host waits in two places only: before a step of its own reads what a copy from a device wrote, and when the run
ends; not then on a stream of the caller's. Between two steps of one device nobody waits: the stream keeps their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dovetail.plan.manifest import ProgramRecord, StepRecord
from dovetail.provider.calls import call
from dovetail.provider.devices import Stream
from dovetail.runtime.capture import CapturedSteps
from dovetail.runtime.copy_step import CopyStep
from dovetail.runtime.device_step import DeviceStep
from dovetail.runtime.devices import ContextDevices
from dovetail.runtime.plugin_step import PluginStep
from dovetail.runtime.steps import Frame, Segments, Step, make_segments

__all__ = ["Schedule", "uses_devices"]


def uses_devices(program: ProgramRecord) -> bool:
    """Whether any value of a program, bodies not included, lies on a device."""
    return any(value.memory for value in program.values)


class Schedule:
    """What a run does, step by step, waits included."""

    def __init__(
        self,
        program: ProgramRecord,
        steps: Sequence[Step],
        devices: ContextDevices,
        *,
        begin: Step | None = None,
        find_places: Callable[[Frame], Any] | None = None,
    ) -> None:
        self._program = program
        self._steps = steps
        self._devices = devices
        self._copies = [step for step in steps if isinstance(step, CopyStep)]
        self._find_places = find_places
        self.captures: list[CapturedSteps] = []
        self._waits = self._find_waits()
        self._begin = [] if begin is None else [begin]
        self.segments = make_segments([*self._begin, *self._with_captures(), self._finish])

    # waiting

    def _find_waits(self) -> list[list[CopyStep]]:
        """For each step the copies to the host that must be done before it, and for the end of the program none."""
        pending: dict[int, CopyStep] = {}
        waits: list[list[CopyStep]] = []
        for record, step in zip(self._program.steps, self._steps, strict=True):
            needed = [pending[index] for index in _reads(record) if index in pending]
            # Copies of one device are done in order, so the last one stands for those before it.
            latest = {copy.provider.name: copy for copy in pending.values() if copy in needed}
            waits.append(list(latest.values()))
            for copy in latest.values():
                copy.is_awaited = True
                pending = _after(pending, copy)
            if isinstance(step, CopyStep) and not step.target_memory:
                pending[step.target] = step
        return waits

    def _finish(self, frame: Frame) -> None:
        """Wait for everything: results are the caller's now, and what the caller passed in may change.

        On a stream that the caller lent nobody waits, unless memory of the host was copied from or to in this run.
        """
        is_copied = any(copy.given is None for copy in self._copies)
        for name, stream in self._devices.streams():
            if is_copied or not self._devices.is_lent(name):
                call(name, "synchronize_stream", stream.synchronize)

    # capture

    def _with_captures(self) -> Iterator[Step]:
        run: list[Step] = []
        for record, step, waits in zip(self._program.steps, self._steps, self._waits, strict=True):
            key = self._capturable(record, step)
            if waits or (run and key != self._capturable_of(run[-1])):
                yield from self._close(run)
                run = []
            yield from (_Wait(copy) for copy in waits)
            if key is None:
                yield step
            else:
                run.append(step)
        yield from self._close(run)

    def _capturable_of(self, step: Step) -> str | None:
        provider = getattr(step, "provider", None)
        return None if provider is None else provider.name

    def _capturable(self, record: StepRecord, step: Step) -> str | None:
        """The provider by which a step can be captured: all it touches stays where it is and is what it is."""
        if self._find_places is None or not self._devices.capture_graphs:
            return None
        is_fixed = isinstance(step, DeviceStep) and step.writes_in_place
        is_fixed = is_fixed or (isinstance(step, PluginStep) and step.provider is not None and step.is_static)
        values = [self._program.values[i] for i in (*record.inputs, *record.outputs) if i >= 0]
        is_fixed = is_fixed and all(
            value.kind == "constant" or (value.kind == "planned" and value.memory == record.provider)
            for value in values
        )
        provider = self._devices.providers[record.provider] if is_fixed else None
        return None if provider is None or not provider.can_capture else provider.name

    def _close(self, run: list[Step]) -> Iterator[Step]:
        stream = self._stream_of(run)
        if len(run) == 0 or stream is None or self._find_places is None:
            yield from run
            return
        name = self._capturable_of(run[0])
        captured = CapturedSteps(run, self._devices.providers[name or ""], stream, self._find_places)
        self.captures.append(captured)
        yield captured

    def _stream_of(self, run: list[Step]) -> Stream | None:
        name = self._capturable_of(run[0]) if run else None
        return None if name is None else self._devices.stream(self._devices.providers[name])

    def forget_captures(self) -> None:
        """Capture again: weights or shapes changed."""
        for captured in self.captures:
            captured.forget()

    # profiling

    def single_steps(self) -> Iterator[Segments]:
        """Each step for itself, with its waits before it and its work done after it, so that it can be timed."""
        begin = self._begin
        for step, waits in zip(self._steps, self._waits, strict=True):
            yield make_segments([*begin, *(_Wait(copy) for copy in waits), step, self._finish])
            begin = []


class _Wait:
    """Has the host wait for a copy."""

    __slots__ = ("_copy", "name")

    def __init__(self, copy: CopyStep) -> None:
        self._copy = copy
        self.name = copy.name

    def __call__(self, frame: Frame) -> None:
        self._copy.wait()


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
        if copy.provider is not done.provider or is_later:
            kept[index] = copy
        is_later = is_later or copy is done
    return kept
