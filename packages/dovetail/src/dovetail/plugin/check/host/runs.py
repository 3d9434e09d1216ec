"""One ``enqueue`` on guarded memory: what the outputs hold afterwards, and what else was touched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from dovetail._coverage import Coverage, cover
from dovetail.formats import size_bytes
from dovetail.plugin.check.host.device_memory import CheckedDevice
from dovetail.plugin.check.host.hostile import Fill, GuardedBuffer
from dovetail.plugin.check.host.tensors import decode, difference, encode, first_equal_bits, guard_unit
from dovetail.types import PluginTensorDesc

__all__ = ["Run", "RunBench", "disagreement", "find_gaps", "unwritten"]

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]


@dataclass(kw_only=True)
class Run:
    """What was seen of one run.

    Attributes:
        outputs: The bytes of each output's memory.
        output_descs: What each output was said to be.
        shapes: The final shape of each output; sizes out of their bounds are cut to them.
        sizes: What each size tensor holds.
        bounds: What each size tensor may hold at most.
        written_inputs: Input index -> which byte changed first, for inputs that are not aliased.
        damage: Writes outside inputs and outputs.
        workspace_damage: A write outside the workspace.
        fill: What outputs and workspace held before.
        aliased: The outputs that share the memory of an input.
    """

    outputs: list[Bytes]
    output_descs: Sequence[PluginTensorDesc]
    shapes: list[tuple[int, ...]]
    sizes: dict[int, int]
    bounds: dict[int, int]
    written_inputs: dict[int, str]
    damage: list[str]
    workspace_damage: str | None
    fill: Fill
    aliased: frozenset[int]

    def array(self, index: int) -> Array:
        """One output as an array of its final shape."""
        desc = self.output_descs[index]
        return decode(self.outputs[index], desc.type, desc.format, self.shapes[index])

    def poison(self, index: int) -> Array:
        """What that array would be had nothing been written."""
        desc = self.output_descs[index]
        raw = np.full(self.outputs[index].shape, self.fill.outputs, np.uint8)
        return decode(raw, desc.type, desc.format, self.shapes[index])


@dataclass(kw_only=True)
class RunBench:
    """The memory of one run, laid out and filled before ``enqueue`` is called."""

    input_descs: list[PluginTensorDesc]
    output_descs: list[PluginTensorDesc]
    arrays: Sequence[Array]
    largest_shapes: Sequence[tuple[int, ...]]
    aliases: Sequence[int]
    workspace_bytes: int
    fill: Fill
    is_workspace_null: bool = False
    device: CheckedDevice | None = None
    """Where the plugin gets its addresses and its stream; None for the host."""
    shared_workspace: GuardedBuffer | None = None
    """The workspace of other runs, as they left it; None for new memory."""
    inputs: list[GuardedBuffer] = field(init=False)
    outputs: list[GuardedBuffer] = field(init=False)
    workspace: GuardedBuffer = field(init=False)
    originals: list[Bytes] = field(init=False)

    def __post_init__(self) -> None:
        pairs = zip(self.arrays, self.input_descs, strict=True)
        self.originals = [encode(array, desc.type, desc.format) for array, desc in pairs]
        self.inputs = []
        for index, raw in enumerate(self.originals):
            guard = guard_unit(self.input_descs[index].type, self.fill.guards)
            buffer = GuardedBuffer(f"input {index}", raw.size, fill=0, guard=guard, device=self.device)
            buffer.body[...] = raw
            self.inputs.append(buffer)
        self.outputs = [self._output(index) for index in range(len(self.output_descs))]
        self.workspace = self.shared_workspace or GuardedBuffer(
            "the workspace", self.workspace_bytes, fill=self.fill.workspace, device=self.device
        )

    def _output(self, index: int) -> GuardedBuffer:
        if self.aliases[index] >= 0:
            return self.inputs[self.aliases[index]]
        desc = self.output_descs[index]
        nbytes = size_bytes(self.largest_shapes[index], desc.type, desc.format)
        return GuardedBuffer(f"output {index}", nbytes, fill=self.fill.outputs, device=self.device)

    @property
    def _buffers(self) -> list[GuardedBuffer]:
        """All memory of the run, that of aliased outputs once."""
        own = [buffer for buffer, alias in zip(self.outputs, self.aliases, strict=True) if alias < 0]
        return [*self.inputs, *own, self.workspace]

    def arguments(self) -> tuple[Any, ...]:
        """What ``enqueue`` is called with; new lists and descriptors at each call.

        All memory is brought to where the plugin sees it.
        """
        for buffer in self._buffers:
            buffer.send()
        return (
            [desc.copy() for desc in self.input_descs],
            [desc.copy() for desc in self.output_descs],
            [buffer.address for buffer in self.inputs],
            [buffer.address for buffer in self.outputs],
            0 if self.is_workspace_null else self.workspace.address,
            0 if self.device is None else self.device.stream,
        )

    def wait(self) -> None:
        """Wait for what ``enqueue`` put on the stream."""
        if self.device is not None:
            self.device.wait()

    def fetch(self) -> None:
        """Have all memory as the plugin left it, when its work is done."""
        self.wait()
        for buffer in self._buffers:
            buffer.fetch()

    def read_size(self, index: int) -> int:
        """The number that a size tensor holds."""
        desc = self.output_descs[index]
        return int(decode(self.outputs[index].body, desc.type, desc.format, ()))

    def finish(self, sizes: dict[int, int], bounds: dict[int, int], shapes: list[tuple[int, ...]]) -> Run:
        """Collect what is to be seen after the call."""
        buffers = [*self.inputs, *(o for o, alias in zip(self.outputs, self.aliases, strict=True) if alias < 0)]
        return Run(
            outputs=[buffer.body.copy() for buffer in self.outputs],
            output_descs=self.output_descs,
            shapes=shapes,
            sizes=sizes,
            bounds=bounds,
            written_inputs=self._written_inputs(),
            damage=[text for text in (buffer.damage() for buffer in buffers) if text],
            workspace_damage=self.workspace.damage(),
            fill=self.fill,
            aliased=frozenset(index for index, alias in enumerate(self.aliases) if alias >= 0),
        )

    def refill(self, other: RunBench) -> None:
        """Replace the inputs by those of another run, and fill outputs and workspace as before the run."""
        self.originals = other.originals
        self.restore(self.fill)

    def restore(self, fill: Fill | None) -> None:
        """Restore the inputs for another run.

        Args:
            fill: Contents of outputs and workspace; None leaves both as the last run did.
        """
        for buffer, raw in zip(self.inputs, self.originals, strict=True):
            buffer.body[...] = raw
        if fill is None:
            return
        self.workspace.body[...] = fill.workspace
        for buffer, alias in zip(self.outputs, self.aliases, strict=True):
            if alias < 0:
                buffer.body[...] = fill.outputs

    def overwrite(self) -> None:
        """Change every byte of inputs and outputs, as memory is that others use by now."""
        for buffer in (*self.inputs, *self.outputs):
            np.invert(buffer.body, out=buffer.body)
            buffer.send()

    def _written_inputs(self) -> dict[int, str]:
        written = {}
        for index, (buffer, original) in enumerate(zip(self.inputs, self.originals, strict=True)):
            changed = np.flatnonzero(buffer.body != original)
            if changed.size and index not in self.aliases:
                written[index] = f"{changed.size} bytes, the first at byte {changed[0]}"
        return written


def disagreement(got: Run, expected: Run) -> str | None:
    """The first output in which two runs differ by more than the type allows, in words."""
    for index, desc in enumerate(got.output_descs):
        found = difference(got.array(index), expected.array(index), desc.type)
        if found:
            return f"output {index}, {found}"
    return None


def find_gaps(run: Run) -> list[tuple[int, Coverage]]:
    """The outputs of a run in which a comparison has not every element to look at, with how much there is."""
    arrays = [run.array(index).astype(np.float64) for index in range(len(run.outputs))]
    found = [(index, cover(array, array)) for index, array in enumerate(arrays)]
    return [(index, coverage) for index, coverage in found if coverage.describe()]


def unwritten(first: Run, second: Run) -> str | None:
    """The first output element that kept the fill of both runs, in words."""
    for index in range(len(first.outputs)):
        if index in first.aliased or first.shapes[index] != second.shapes[index]:
            continue
        found = first_equal_bits([(run.array(index), run.poison(index)) for run in (first, second)])
        if found:
            element, count = found
            total = int(np.prod(first.shapes[index], dtype=np.int64))
            return f"output {index}, element {element} was not written ({count} of {total} elements)"
    return None
