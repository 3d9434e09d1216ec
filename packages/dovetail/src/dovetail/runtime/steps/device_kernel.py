"""A kernel of a device: work that it puts on the context's stream and that ends some time later."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dovetail.errors import DovetailError, PlanError
from dovetail.plan.manifest import StepRecord, ValueRecord
from dovetail.provider.calls import provider_failure
from dovetail.provider.interfaces import CompiledKernel, Provider
from dovetail.runtime.devices.streams import ContextDevices
from dovetail.runtime.steps.base import BoundStep, Step, argument_getter, check_like, is_placed, split_results
from dovetail.runtime.steps.binding import bind_kernel, make_bind_context
from dovetail.runtime.steps.frame import Frame, Workspace

__all__ = ["DeviceKernelStep"]


class DeviceKernelStep(Step):
    """Outputs with planned memory are written there, others are what the kernel returns."""

    def __init__(
        self,
        record: StepRecord,
        values: Sequence[ValueRecord],
        provider: Provider,
        kernel: CompiledKernel,
        devices: ContextDevices,
    ) -> None:
        super().__init__(record)
        self._device = provider
        self._kernel = kernel
        self._devices = devices
        self._outputs = [(index, is_placed(values, index)) for index in record.outputs]
        self._is_planned = all(placed or index < 0 for index, placed in self._outputs)
        self._fetch = argument_getter((*record.inputs, *record.outputs))
        self._fetch_inputs = argument_getter(record.inputs)

    def bind(self, frame: Frame) -> BoundStep:
        """The kernel over a frame; what it returns when it is called is work on the stream."""
        workspace = frame.workspaces.get(self, Workspace())
        context = make_bind_context(self.record, frame, workspace, self._device, self._devices)
        kernel = bind_kernel(self._kernel, self.record, context)
        values, fetch, write = frame.values, self._fetch, kernel.write if self._is_planned else None
        if write is not None:
            frame.capturable.add(self)

        def run() -> None:
            try:
                if write is not None:
                    write(*fetch(values))
                else:
                    self._compute_and_store(kernel, values)
            except DovetailError:
                raise
            except Exception as error:
                raise provider_failure(self.provider, "its kernel", error, self.name) from error

        return run

    def _compute_and_store(self, kernel: CompiledKernel, values: list[Any]) -> None:
        args = self._fetch_inputs(values)
        parts = split_results(kernel.compute(*args), len(self._outputs), self.name)
        for (index, placed), part in zip(self._outputs, parts, strict=False):
            if index < 0:
                continue
            if placed:
                check_like(part, values[index], self.name, f"provider '{self.provider}'")
                self._device.copy(part, values[index], self._devices.stream(self._device))
            elif any(part is arg for arg in args):
                raise PlanError(
                    f"step '{self.name}' gave an input as its output",
                    where=f"provider '{self.provider}'",
                    expected="an array of its own, for the memory of inputs is used again",
                )
            else:
                values[index] = part
