"""Limits of a run, for plans and inputs of strangers: a time, and how much memory its values may take.

Without limits a run is a loop over bound steps. With limits somebody looks between steps, and between the rounds of
loops: the time is up, or the values take too much. Memory that is planned is refused before it is taken. A step that is
under way is asked to end where its provider can end it, as ONNX Runtime can; a kernel or a plugin of the host is waited
for. What a provider takes inside of itself is not counted.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dovetail.errors import ResourceError, UsageError
from dovetail.runtime.steps.control import Body, walk_all_steps, walk_bodies
from dovetail.runtime.steps.frame import Frame
from dovetail.runtime.steps.loop import Entry

if TYPE_CHECKING:
    from dovetail.runtime.bind.run import BoundRun, Visit

__all__ = ["RunLimits", "run_within"]

_AGAIN_S: Final = 0.05


@dataclass(frozen=True, kw_only=True)
class RunLimits:
    """What one run may take; None for no limit."""

    time_s: float | None = None
    memory_bytes: int | None = None

    def __post_init__(self) -> None:
        for name in ("time_s", "memory_bytes"):
            limit = getattr(self, name)
            if limit is not None and not limit > 0:
                raise UsageError("not a limit", where=name, expected="a positive number, or None", got=limit)

    def check_memory(self, size_bytes: int) -> None:
        """Raise when values take more than a run may."""
        if self.memory_bytes is not None and size_bytes > self.memory_bytes:
            raise ResourceError(
                "the values of the run take more memory than its limit",
                expected=f"at most {self.memory_bytes} bytes",
                got=size_bytes,
                fix="use smaller shapes, or raise run_limits",
            )


def run_within(limits: RunLimits) -> Visit:
    """What runs the steps of a bound run and ends it when a limit is reached."""

    def visit(run: BoundRun) -> None:
        watch = _RunWatch(limits, run)
        with watch.interrupting(), watch.watching_bodies():
            run.begin()
            for _, step in run.single_steps():
                watch.run(step.run)
            run.end()

    return visit


class _RunWatch:
    """One run and what it has taken so far."""

    def __init__(self, limits: RunLimits, run: BoundRun) -> None:
        self._limits = limits
        self._run = run
        self._start = time.monotonic()
        self._is_over = False
        self._collected_bytes = 0
        """What loops have collected; they join it when they end."""
        self._fixed = {id(run.frame.values[index]) for index in run.frame.fixed}
        self._planned_bytes = run.instance.arena_bytes
        self._collected = _find_collected(run)

    def run(self, step: Callable[[], object]) -> None:
        """Run one step and look."""
        self._check_time()
        try:
            step()
        except Exception as error:
            if self._is_over:  # the step was ended, and says so in its own words
                raise self._too_long() from error
            raise
        self._check_time()
        self._limits.check_memory(self._planned_bytes + self._collected_bytes + self._count(self._run.frame.values))

    def _check_time(self) -> None:
        limit = self._limits.time_s
        if limit is not None and time.monotonic() - self._start > limit:
            raise self._too_long()

    def _too_long(self) -> ResourceError:
        return ResourceError(
            "the run takes longer than its limit",
            expected=f"at most {self._limits.time_s:g} s",
            fix="raise run_limits, or use smaller inputs",
        )

    def _count(self, values: Sequence[Any]) -> int:
        """The bytes of values that are neither constants nor planned."""
        arrays = {
            id(value): value for value in values if isinstance(value, np.ndarray) and id(value) not in self._fixed
        }
        return sum(array.nbytes for array in arrays.values())

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        """Have steps that can be ended end when the time is up."""
        if self._limits.time_s is None or not self._run.frame.interruptible:
            yield
            return
        done, ends = threading.Event(), [make() for make in self._run.frame.interruptible]
        thread = threading.Thread(target=self._interrupt, args=(done, ends), name="dovetail-limit", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def _interrupt(self, done: threading.Event, ends: Sequence[Callable[[], None]]) -> None:
        """End what is under way when the time is up, again and again: a step may be just about to begin."""
        wait_s = self._limits.time_s
        while not done.wait(wait_s):
            self._is_over, wait_s = True, _AGAIN_S
            for end in ends:
                end()

    @contextmanager
    def watching_bodies(self) -> Iterator[None]:
        """Look between the steps of bodies too."""
        bodies = list(walk_bodies(self._run.instance.steps))
        try:
            for body in bodies:
                body.watch = self._run_body
            yield
        finally:
            for body in bodies:
                body.watch = None

    def _run_body(self, body: Body, entries: Sequence[Entry], frame: Frame) -> None:
        self._check_time()
        for entry in entries:
            with np.errstate(all="ignore") if entry.is_quiet else nullcontext():
                entry.run()
            self._check_time()
        self._collected_bytes += self._count([frame.values[index] for index in self._collected.get(body, ())])
        self._limits.check_memory(self._planned_bytes + self._collected_bytes + self._count(frame.values))


def _find_collected(run: BoundRun) -> dict[Body, Sequence[int]]:
    """The values that each body of a loop makes anew in every round, and that the loop keeps."""
    loops = [step for step in walk_all_steps(run.instance.steps) if step.record.op == "Loop" and step.bodies]
    return {step.bodies[0]: step.bodies[0].program.outputs[len(step.record.inputs) - 1 :] for step in loops}
