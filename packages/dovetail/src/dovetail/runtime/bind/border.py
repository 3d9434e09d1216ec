"""The border of a program with devices: inputs and outputs that lie there, whatever memory a caller gives for them.

An array of the device is used as it is. An array of the host is staged: it is copied to pinned memory and from there to
the device on the context's stream, and results come back the same way and are waited for once, at the end. What staging
needs is taken in the first run of a bound run that has such an array.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dovetail.errors import InputError
from dovetail.plan.manifest import Manifest, ProgramRecord, TensorRecord
from dovetail.provider.calls import call
from dovetail.provider.interfaces import Provider
from dovetail.runtime.devices.streams import ContextDevices, ContextStream
from dovetail.runtime.memory.staging import StagingBlock
from dovetail.runtime.steps.base import Array, Step, check_same_size
from dovetail.runtime.steps.copy import CopyStep
from dovetail.runtime.steps.frame import Frame

__all__ = ["BoundBorder", "RunBorder"]


@dataclass(frozen=True, kw_only=True)
class _RunTensor:
    """An input or output that lies on a device."""

    position: int
    """Among the inputs or the outputs."""
    index: int
    """Of its value."""
    tensor: TensorRecord
    dtype: np.dtype[Any]
    provider: Provider
    stream: ContextStream | None
    alias: int | None = None
    """The position of the input whose memory it has."""

    def copy(self, source: Any, target: Any) -> None:
        """Copy in the order of the context's stream."""
        call(self.provider.id, "copy", self.provider.copy, source, target, self.stream)


class RunBorder:
    """What is fixed about the border of one program in one context; every bound run binds it for itself."""

    def __init__(
        self, manifest: Manifest, program: ProgramRecord, steps: Sequence[Step], devices: ContextDevices
    ) -> None:
        self.devices = devices
        self.inputs = _find_ports(program.inputs, manifest.inputs, devices)
        self.outputs = _find_ports(program.outputs, manifest.outputs, devices, manifest.inputs)
        self.input_values = program.inputs
        bound = [port.index for port in (*self.inputs, *self.outputs)]
        self.places = [index for index in bound if program.values[index].kind in ("input", "output")]
        """The values that callers may bring to lie elsewhere in each run."""
        self.has_host_copies = any(isinstance(step, CopyStep) and step.is_with_host for step in steps)
        """Whether steps copy from or to memory of the host, so that a run has to wait at its end."""

    def bind(self, frame: Frame) -> BoundBorder:
        """The border over a frame."""
        bound = BoundBorder(self, frame)
        frame.closers.append(bound.close)
        return bound


def _find_ports(
    indices: Sequence[int],
    tensors: Sequence[TensorRecord],
    devices: ContextDevices,
    inputs: Sequence[TensorRecord] = (),
) -> list[_RunTensor]:
    ports, names = [], [tensor.name for tensor in inputs]
    for position, (index, tensor) in enumerate(zip(indices, tensors, strict=True)):
        if tensor.memory:
            provider = devices.providers[tensor.memory]
            port = _RunTensor(
                position=position,
                index=index,
                tensor=tensor,
                dtype=np.dtype(tensor.dtype),
                provider=provider,
                stream=devices.stream(provider),
                alias=None if tensor.alias is None else names.index(tensor.alias),
            )
            ports.append(port)
    return ports


class BoundBorder:
    """The border of one bound run."""

    def __init__(self, border: RunBorder, frame: Frame) -> None:
        self._border = border
        self._frame = frame
        self._staging: dict[str, StagingBlock] = {}
        self._uploads: list[tuple[_RunTensor, Array]] = []
        """The inputs of this run that are arrays of the host."""
        self._downloads: list[tuple[_RunTensor, Array | None]] = []
        """The outputs of this run that are to be on the host; None for one whose shape only the run tells."""
        self._results: dict[int, Array] = {}

    def place(self, inputs: Sequence[Any], outputs: Sequence[Any], *, keep: bool) -> None:
        """Put what the steps on devices use into the frame.

        Args:
            inputs: For each input of the program what the caller gave.
            outputs: For each output what it is written to; None where the step brings the memory.
            keep: Whether results that steps bring stay on the device.
        """
        self.clear()
        values = self._frame.values
        for port in self._border.inputs:
            given = inputs[port.position]
            if given.__class__ is np.ndarray:
                self._uploads.append((port, given))
                values[port.index] = self._find_staging(port).on_device[port.index]
        for port in self._border.outputs:
            given = outputs[port.position]
            if port.alias is not None:
                self._share(port, port.alias, inputs[port.alias], given, keep=keep)
            elif given.__class__ is np.ndarray:
                self._downloads.append((port, given))
                values[port.index] = self._find_staging(port).on_device[port.index]
            elif given is not None:
                self._check_shape(port, given)
            elif not keep:
                self._downloads.append((port, None))

    def _share(self, port: _RunTensor, alias: int, source: Any, given: Any, *, keep: bool) -> None:
        """Give an output the memory of its input, and bring it where the caller wants it."""
        values, where = self._frame.values, f"output '{port.tensor.name}'"
        shared = values[self._border.input_values[alias]]
        if given.__class__ is np.ndarray:
            self._downloads.append((port, given))
        elif given is not None and given.address != shared.address:
            raise InputError(f"it shares memory with input '{port.tensor.alias}'", where=where, expected="one address")
        elif given is None and keep and source.__class__ is np.ndarray:
            raise InputError(
                f"it shares memory with input '{port.tensor.alias}', which is an array of the host",
                where=where,
                fix="give that input as an array of the device",
            )
        # The plan's shape of the output decides how much is written and fetched.
        shape = self._frame.shapes[port.index]
        if shape is not None:
            check_same_size(shared, shape, port.dtype, where=where)
        values[port.index] = shared

    def _check_shape(self, port: _RunTensor, given: Any) -> None:
        expected = self._frame.shapes[port.index]
        if expected is not None and tuple(given.shape) != tuple(expected):
            name = port.tensor.name
            raise InputError("wrong shape", where=f"output '{name}'", expected=expected, got=tuple(given.shape))

    def _find_staging(self, port: _RunTensor) -> StagingBlock:
        memory = port.tensor.memory
        if memory not in self._staging:
            shapes, ports = self._frame.shapes, (*self._border.inputs, *self._border.outputs)
            near = [(p, shapes[p.index]) for p in ports if p.tensor.memory == memory]
            tensors = {p.index: (shape, p.dtype) for p, shape in near if shape is not None}
            self._staging[memory] = StagingBlock(port.provider, port.stream, tensors)
        return self._staging[memory]

    # a run

    def run_around(self, run_steps: Callable[[], object]) -> None:
        """Run steps between what goes in and what comes out."""
        self.upload()
        run_steps()
        self.finish()

    def upload(self) -> None:
        """Send arrays of the host to the devices, in the order of the streams."""
        for port, given in self._uploads:
            staging = self._staging[port.tensor.memory]
            np.copyto(staging.on_host[port.index], given)
            port.copy(staging.on_host[port.index], staging.on_device[port.index])

    def finish(self) -> None:
        """Fetch results that are to be on the host, and wait where somebody needs it.

        On a queue of the caller's nobody waits for a run that touched no memory of the host.
        """
        for port, target in self._downloads:
            self._results[port.position] = self._fetch(port) if target is None else self._fetch_staged(port)
        is_needed = bool(self._uploads or self._downloads) or self._border.has_host_copies
        self.wait(with_callers=is_needed)
        for port, target in self._downloads:
            if target is not None:
                np.copyto(target, self._results[port.position])
                self._results[port.position] = target

    def wait(self, *, with_callers: bool = True) -> None:
        """Wait for the context's queues, and for those of the caller's where that is asked for."""
        for name, stream in self._border.devices.streams():
            if with_callers or stream.is_own:
                call(name, "synchronize_stream", stream.synchronize)

    def _fetch_staged(self, port: _RunTensor) -> Array:
        staged = self._find_staging(port).on_host[port.index]
        port.copy(self._frame.values[port.index], staged)
        return staged

    def _fetch(self, port: _RunTensor) -> Array:
        """A result whose shape the run told; the step that made it knew the shape, so it is there."""
        array = self._frame.values[port.index]
        fetched = np.empty(tuple(array.shape), array.dtype)
        port.copy(array, fetched)
        return fetched

    def collect(self, results: list[Any]) -> list[Any]:
        """The results of a run, those that came to the host in place of what lies on the device."""
        for position, array in self._results.items():
            results[position] = array
        return results

    def clear(self) -> None:
        """Forget the arrays of a run."""
        if self._uploads or self._downloads:
            self._uploads, self._downloads, self._results = [], [], {}

    def close(self) -> None:
        """Give the memory for staging back."""
        for staging in self._staging.values():
            staging.close()
        self._staging.clear()
