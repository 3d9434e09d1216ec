"""Looking at every value of a run: inputs first, then what each step wrote, in the bodies of loops too."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np

from dovetail.plan.manifest import ProgramRecord, ValueRecord
from dovetail.provider.calls import call
from dovetail.provider.options import Providers
from dovetail.runtime.bind.run import BoundRun, Visit
from dovetail.runtime.memory.checks import memories_of
from dovetail.runtime.steps.base import Step
from dovetail.runtime.steps.control import Body, walk_bodies
from dovetail.runtime.steps.frame import Frame
from dovetail.runtime.steps.loop import Entry

__all__ = ["Observer", "observe_with"]

Observer = Callable[[ValueRecord, Any], None]
"""Told a value and what it holds now; the array is the engine's and changes with the next step."""


def observe_with(observe: Observer) -> Visit:
    """What runs the steps of a bound run and shows every value but constants, after it was made."""

    def visit(run: BoundRun) -> None:
        instance, values = run.instance, run.frame.values
        program, providers = instance.program, instance.devices.providers

        def observe_on_host(value: ValueRecord, array: Any) -> None:
            observe(value, _read(value, array, providers))

        with _watched_bodies(instance.steps, observe):
            run.begin()
            _show(program, program.inputs, values, observe_on_host)
            for record, step in run.single_steps():
                step.run()
                _show(program, record.outputs, values, observe_on_host)
            run.end()

    return visit


def _show(program: ProgramRecord, indices: Sequence[int], values: Sequence[Any], observe: Observer) -> None:
    for index in indices:
        if index >= 0 and values[index] is not None:
            observe(program.values[index], values[index])


def _read(value: ValueRecord, array: Any, providers: Providers) -> Any:
    """What a value holds, copied to the host when it lies on a device."""
    if not value.memory:
        return array
    provider, copied = providers[value.memory], np.empty(array.shape, array.dtype)
    call(provider.id, "copy", provider.copy, array, copied, None)
    call(provider.id, "synchronize", provider.synchronize)
    return copied


@contextmanager
def _watched_bodies(steps: Sequence[Step], observe: Observer) -> Iterator[None]:
    """Have every body show its values while it runs; afterwards the bodies are as they were.

    A body with steps of a device is left alone: what it holds while it runs is not there to be read.
    """

    def watch(body: Body, entries: Sequence[Entry], frame: Frame) -> None:
        _show(body.program, body.program.inputs, frame.values, observe)
        for record, entry in zip(body.program.steps, entries, strict=True):
            with np.errstate(all="ignore") if entry.is_quiet else nullcontext():
                entry.run()
            _show(body.program, record.outputs, frame.values, observe)

    bodies = [body for body in walk_bodies(steps) if not memories_of(body.program)]
    try:
        for body in bodies:
            body.watch = watch
        yield
    finally:
        for body in bodies:
            body.watch = None
