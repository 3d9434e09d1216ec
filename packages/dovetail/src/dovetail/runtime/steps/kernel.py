"""A kernel of a provider on the host, over the values of a frame."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from dovetail.plan.manifest import StepRecord, ValueRecord
from dovetail.provider.interfaces import CompiledKernel, Provider
from dovetail.runtime.devices.streams import ContextDevices
from dovetail.runtime.steps.base import BoundStep, Step, argument_getter, is_placed, split_results, store
from dovetail.runtime.steps.binding import bind_kernel, make_bind_context
from dovetail.runtime.steps.frame import Frame, Workspace

__all__ = ["KernelStep"]


class KernelStep(Step):
    """A kernel: arrays in, arrays out, or outputs written where they lie."""

    is_quiet = True

    def __init__(
        self,
        record: StepRecord,
        values: Sequence[ValueRecord],
        provider: Provider,
        kernel: CompiledKernel,
        devices: ContextDevices,
    ) -> None:
        super().__init__(record)
        self._owner = provider
        self._kernel = kernel
        self._devices = devices
        self._slots = (*record.inputs, *record.outputs)
        self._fetch = argument_getter(record.inputs)
        self._outputs = [(index, is_placed(values, index)) for index in record.outputs]
        self._is_sized = all(placed for _, placed in self._outputs) and all(
            index < 0 or values[index].kind in ("constant", "input") or is_placed(values, index)
            for index in record.inputs
        )
        """Whether all it touches has a shape that is known before the run, and all it makes has memory by then."""

    def bind(self, frame: Frame) -> BoundStep:
        """The kernel over a frame; it writes its outputs where they lie once the plan's shapes were seen to be right.

        NumPy would broadcast or cast into an output that does not fit, and say nothing. So the first run computes and
        compares, and the shapes of a frame never change after that.
        """
        workspace = frame.workspaces.get(self, Workspace())
        context = make_bind_context(self.record, frame, workspace, self._owner, self._devices)
        kernel = bind_kernel(self._kernel, self.record, context)
        compute = partial(self._compute_and_store, kernel.compute, frame.values)
        if kernel.write is None or not self._is_sized or frame.is_loose:
            return compute
        write, is_known = self._bind_write(kernel.write, frame), False

        def run() -> None:
            nonlocal is_known
            if is_known:
                write()
                return
            compute()
            is_known = True

        return run

    def _bind_write(self, write: Callable[..., Any], frame: Frame) -> BoundStep:
        values, slots = frame.values, self._slots
        if all(index < 0 or index in frame.fixed for index in slots):
            return partial(write, *[values[index] for index in slots])
        fetch = argument_getter(slots)
        return lambda: write(*fetch(values))

    def _compute_and_store(self, compute: Callable[..., Any], values: list[Any]) -> None:
        args = self._fetch(values)
        parts = split_results(compute(*args), len(self._outputs), self.name)
        for (index, placed), part in zip(self._outputs, parts, strict=False):
            if index >= 0:
                store(values, index, placed, part, args, self.name)
