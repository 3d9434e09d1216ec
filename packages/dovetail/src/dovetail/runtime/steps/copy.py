"""A copy between memories, in the order of a stream: to a device, from one, inside one, or from one to another."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from dovetail.errors import DovetailError
from dovetail.plan.manifest import StepRecord, ValueRecord
from dovetail.provider.calls import call, provider_failure
from dovetail.provider.devices import Event, Stream
from dovetail.provider.interfaces import Provider
from dovetail.runtime.devices.streams import ContextDevices
from dovetail.runtime.memory.blocks import DeviceBlock
from dovetail.runtime.steps.base import BoundStep, Step, check_like, is_placed
from dovetail.runtime.steps.frame import Frame

__all__ = ["CopyStep"]


class CopyStep(Step):
    """Copies one value; the host may have to wait before it reads what was copied to it."""

    def __init__(self, record: StepRecord, values: Sequence[ValueRecord], devices: ContextDevices) -> None:
        super().__init__(record)
        self._device: Provider = devices.providers[record.provider]
        self.source, self.target = record.inputs[0], record.outputs[0]
        self.source_memory, self.target_memory = values[self.source].memory, values[self.target].memory
        self.event: Event | None = None
        """When what was copied to the host is there; set by each run for copies that somebody waits for."""
        self.is_awaited = False
        self.is_with_host = not (self.source_memory and self.target_memory)
        """Whether one of the two memories is the host's."""
        self._placed = is_placed(values, self.target)
        self._providers = devices.providers
        self._stream = devices.stream(self._device)
        self._streams = {name: devices.stream(devices.providers[name]) for name in {self.target_memory} - {""}}
        self._other = self._find_other(devices)
        self._block: DeviceBlock | None = None

    def _find_other(self, devices: ContextDevices) -> Stream | None:
        """The stream of the second device of a copy between two."""
        others = {self.source_memory, self.target_memory} - {self.provider, ""}
        return devices.stream(devices.providers[others.pop()]) if others else None

    def bind(self, frame: Frame) -> BoundStep:
        """The copy over a frame."""
        return partial(self._run, frame.values)

    def _run(self, values: list[Any]) -> None:
        """Put the copy on the stream."""
        target = values[self.target] if self._placed else self._make_target(values)
        try:
            self._copy(values[self.source], target)
        except DovetailError:
            raise
        except Exception as error:
            raise provider_failure(self.provider, "copy", error, self.name) from error

    def _copy(self, source: Any, target: Any) -> None:
        check_like(source, target, self.name)
        stream, other = self._stream, self._other
        if other is not None and stream is not None:
            stream.wait(other.record())
        elif other is not None:
            other.synchronize()
        self._device.copy(source, target, stream)
        if other is not None and stream is not None:
            other.wait(stream.record())
        if self.is_awaited and stream is not None:
            self.event = stream.record()

    def wait(self) -> None:
        """Wait until what was copied to the host is there."""
        if self.event is not None:
            call(self.provider, "synchronize_event", self.event.synchronize)

    def close(self) -> None:
        """Give back memory of its own."""
        if self._block is not None:
            self._block.close()

    def _make_target(self, values: list[Any]) -> Any:
        """Memory for a value whose shape only the run tells.

        On a device it is the same in every run: work on the stream that still reads it comes before the copy.
        """
        source = values[self.source]
        if not self.target_memory:
            values[self.target] = np.empty(source.shape, source.dtype)
        else:
            if self._block is None:
                provider = self._providers[self.target_memory]
                self._block = DeviceBlock(provider, stream=self._streams[self.target_memory])
            self._block.reserve(max(self._block.size_of(source.shape, source.dtype), 1))
            values[self.target] = self._block.view(0, source.shape, source.dtype)
        return values[self.target]
