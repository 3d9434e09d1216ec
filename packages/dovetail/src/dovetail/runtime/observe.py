"""Looking at every value of a run: the slower loop that shows what each step wrote, in the bodies of loops too."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from dovetail.plan.manifest import ProgramRecord, StepRecord, ValueRecord
from dovetail.provider.calls import call
from dovetail.provider.options import Providers
from dovetail.runtime.control import BodyRunner
from dovetail.runtime.runner import ProgramRunner
from dovetail.runtime.schedule import uses_devices
from dovetail.runtime.steps import Frame, Step, run_segments

__all__ = ["Observer", "run_observed"]

Observer = Callable[[ValueRecord, Any], None]
"""Told a value and what it holds now; the array is the engine's and changes with the next step."""


def run_observed(runner: ProgramRunner, observe: Observer) -> None:
    """One run in which every value but constants is shown: inputs first, then what each step wrote, after it ran."""
    runner.announce_changes()
    program, frame = runner.program, runner.frame
    providers = runner.devices.providers

    def observe_on_host(value: ValueRecord, array: Any) -> None:
        observe(value, _read(value, array, providers))

    with _watched_bodies(runner.steps, observe):
        _show(program, program.inputs, frame, observe_on_host)
        for record, step in zip(program.steps, _single_steps(runner), strict=True):
            step(frame)
            _show(program, record.outputs, frame, observe_on_host)


def _single_steps(runner: ProgramRunner) -> Sequence[Step]:
    """The steps, each done when it returns."""
    if runner.schedule is None:
        return runner.steps
    return [partial(run_segments, segments) for segments in runner.schedule.single_steps()]


def _show(program: ProgramRecord, indices: Sequence[int], frame: Frame, observe: Observer) -> None:
    for index in indices:
        if index >= 0 and frame[index] is not None:
            observe(program.values[index], frame[index])


def _read(value: ValueRecord, array: Any, providers: Providers) -> Any:
    """What a value holds, copied to the host when it lies on a device."""
    if not value.memory:
        return array
    provider, copied = providers[value.memory], np.empty(array.shape, array.dtype)
    call(provider.name, "copy", provider.copy, array, copied, None)
    call(provider.name, "synchronize", provider.synchronize)
    return copied


@contextmanager
def _watched_bodies(steps: Sequence[Step], observe: Observer) -> Iterator[None]:
    """Put a step that shows before and after the steps of every body; afterwards the bodies are as they were.

    A body with steps of a device is left alone: what it holds while it runs is not there to be read.
    """
    bodies = [(body, body.steps) for body in _bodies(steps) if not uses_devices(body.program)]
    try:
        for body, plain in bodies:
            body.steps = _watch(body.program, plain, observe)
        yield
    finally:
        for body, plain in bodies:
            body.steps = plain


def _bodies(steps: Sequence[Step]) -> list[BodyRunner]:
    found: list[BodyRunner] = []
    for step in steps:
        for body in getattr(step, "bodies", ()):
            found += [body, *_bodies(body.steps)]
    return found


def _watch(program: ProgramRecord, steps: Sequence[Step], observe: Observer) -> list[Step]:
    watched: list[Step] = [lambda frame: _show(program, program.inputs, frame, observe)]
    for record, step in zip(program.steps, steps, strict=True):
        watched += [step, _shower(program, record, observe)]
    return watched


def _shower(program: ProgramRecord, record: StepRecord, observe: Observer) -> Step:
    return lambda frame: _show(program, record.outputs, frame, observe)
