"""One way to run a plugin layer, with memory to run it in at the shapes a profile is tuned for, where it will run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dovetail.build.tune.agree import Output, Result
from dovetail.build.tune.clocks import Lane
from dovetail.build.tune.combinations import Combination, describe_tensor, layout_text
from dovetail.build.tune.inputs import draw_integers, draw_numbers, make_generator
from dovetail.build.tune.memory import PlacedArray, place_array, place_workspace, read_available_bytes
from dovetail.errors import ResourceError
from dovetail.formats import pack, pack_nibbles, packed_shape, size_bytes, unpack, unpack_nibbles
from dovetail.loggers import ILogger
from dovetail.plugin.handle import PluginHandle
from dovetail.plugin.kernels import decode_launch, encode_launch
from dovetail.provider.calls import call
from dovetail.provider.interfaces import Provider
from dovetail.quantize import convert_type
from dovetail.runtime.steps.kernel_plugin import load_kernel_plugin
from dovetail.tensors import TensorSpec
from dovetail.types import DataType, Dims, PluginTensorDesc

__all__ = ["PluginLayer", "PluginTrial", "dynamic_descs", "workspace_descs"]


@dataclass(frozen=True, kw_only=True)
class PluginLayer:
    """One plugin layer in one profile, as the tuner sees it."""

    name: str
    handle: PluginHandle
    provider: Provider
    """Whose memory and stream it gets."""
    tensors: tuple[TensorSpec, ...]
    """Its inputs and outputs in the network's types, with the shapes of the profile."""
    proposals: tuple[Combination, ...]
    """The layouts to propose for each of them, in order."""
    rooms: tuple[tuple[int, ...], ...]
    """The shape that each needs memory for at the tuned one: for size tensors, their bounds."""
    num_inputs: int
    data_dependent: tuple[Mapping[int, int], ...]
    """For each output its data-dependent axes, each with the output that is its size tensor."""
    size_bounds: Mapping[int, int]
    """The upper bound of each output that is a size tensor, at the tuned shape."""
    contents: tuple[Any, ...]
    """For each input its contents at the tuned shape where they are known, such as those of a weight, else None."""
    aliases: tuple[int, ...]
    """For each output the input it shares memory with, or -1."""
    is_linear_only: bool = False
    """Whether no other format is proposed, because only the run tells the shapes."""

    @property
    def is_bounded(self) -> bool:
        """Whether every dimension has a largest value."""
        return all(tensor.shapes is not None and None not in tensor.shapes.max for tensor in self.tensors)

    @property
    def has_made_up_integers(self) -> bool:
        """Whether an input is made of integers, such as indices, that nothing is known of while building."""
        unknown = [i for i, contents in enumerate(self.contents) if contents is None and 0 not in self.opt(i)]
        types = [self.tensors[i].data_type for i in unknown]
        return any(not dtype.is_float and dtype is not DataType.BOOL for dtype in types)

    def opt(self, position: int) -> tuple[int, ...]:
        """The shape that one of its tensors is tuned for."""
        shapes = self.tensors[position].shapes
        return () if shapes is None else shapes.opt


class PluginTrial:
    """One combination with one tactic, with memory to run it at the shapes the profile is tuned for."""

    def __init__(
        self, number: int, layer: PluginLayer, combination: Combination, tactic: int, handle: PluginHandle, lane: Lane
    ) -> None:
        self.id, self.layer, self.combination, self.tactic, self.handle = number, layer, combination, tactic, handle
        self.tactic_name = handle.name_tactic(tactic)
        name = f" '{self.tactic_name}'" if self.tactic_name else ""
        self.label = f"{', '.join(map(layout_text, combination))} tactic {tactic}{name}"
        self.title = f"tactic {tactic}{name} of '{layer.name}'"
        self._lane = lane
        self._running = handle
        """What runs: the plugin, or the kernel that it gave."""
        self._arrays: list[PlacedArray] | None = None
        self._workspace_bytes = 0
        self._workspace: PlacedArray | None = None
        self._arguments: tuple[Any, ...] = ()
        self.is_checked = False
        """Whether a run of it was checked, and passed."""

    def check_workspace(
        self, ask: Callable[[PluginLayer, PluginHandle, Combination], int], limit_bytes: int
    ) -> str | None:
        """Ask for the workspace with the tactic set; a reason when it is over the limit."""
        self.handle.set_tactic(self.tactic)
        self._workspace_bytes = ask(self.layer, self.handle, self.combination)
        if self._workspace_bytes > limit_bytes:
            return f"needs {self._workspace_bytes} bytes of workspace, the limit is {limit_bytes}"
        return None

    def prepare(self) -> None:
        """Allocate memory and announce shapes before the first burst of runs; not timed."""
        if self._arrays is None:
            self.allocate()
            self.announce()

    def announce(self) -> None:
        """Load the kernel of a plugin that is one, and announce the shapes."""
        self._load_kernel()
        self._running.on_shape_change(self._arguments[0], self._arguments[1])

    def run(self) -> None:
        """One enqueue; a status that is a failure is raised."""
        returned = self.enqueue()
        if returned is not None:
            self.handle.check_status("enqueue", returned)

    def enqueue(self) -> Any:
        """One enqueue; return its status."""
        return self._running.runtime.enqueue(*self._arguments)

    def free(self) -> None:
        """Free the tensors and the workspace; the plugin stays."""
        self._arrays, self._workspace, self._arguments = None, None, ()

    def close(self, logger: ILogger) -> None:
        """Let go of the plugin, and of its kernel where it gave one."""
        if self._running is not self.handle:
            self._running.destroy(logger)
        self.handle.destroy(logger)

    def _load_kernel(self) -> None:
        """Have a plugin that is a kernel run as the kernel of this combination and tactic."""
        if not self.handle.offers_kernel or self._running is not self.handle:
            return
        handle, provider = self.handle, self._lane.provider
        launch = handle.get_kernel_launch(*dynamic_descs(self.layer, self.combination))
        stored = decode_launch(encode_launch(launch, handle.where), handle.where)
        identity = (handle.name, handle.version, handle.namespace)
        self._running = load_kernel_plugin(identity, stored, launch.code, provider)

    def require_memory(self) -> None:
        """Check that the host has memory for the tensors and the workspace of one run.

        Allocations may succeed beyond it, and the process is ended when it writes them.

        Raises:
            ResourceError: It has not, by its own account.
        """
        available = read_available_bytes()
        if available is None or not self._lane.provider.memory.is_host:
            return
        rooms = zip(self.layer.rooms, self.combination, strict=True)
        needed = sum(size_bytes(room, layout.data_type, layout.tensor_format) for room, layout in rooms)
        if needed + self._workspace_bytes > available:
            raise ResourceError("out of memory", expected=f"at most {available} bytes", got=f"{needed} bytes")

    def allocate(self, fill: Callable[[DataType], int] | None = None, *, integer: int | None = None) -> None:
        """Allocate inputs, outputs and workspace.

        Args:
            fill: Gives the value of every byte of an output by its type; by default outputs are zero.
            integer: The value of every element of integer inputs whose contents are not known; by default 0 and 1.
        """
        layer, count, lane = self.layer, self.layer.num_inputs, self._lane
        inputs = [place_array(lane, _make_input(i, layer, self.combination[i], integer)) for i in range(count)]
        outputs = []
        for index, layout in enumerate(self.combination[count:]):
            source, room = layer.aliases[index], layer.rooms[count + index]
            memory = _output_memory(room, layout) if source < 0 else None
            if memory is not None and fill is not None:
                memory.reshape(-1).view(np.uint8)[...] = fill(layout.data_type)
            outputs.append(inputs[source] if memory is None else place_array(lane, memory))
        self._arrays = [*inputs, *outputs]
        self._workspace = place_workspace(lane, self._workspace_bytes)
        pointers = [array.address for array in self._arrays]
        stream = 0 if lane.stream is None else lane.stream.handle
        self._arguments = (*self._descs(), pointers[:count], pointers[count:], self._workspace.address, stream)

    def _descs(self) -> tuple[list[PluginTensorDesc], list[PluginTensorDesc]]:
        count = self.layer.num_inputs
        descs = []
        for position, layout in enumerate(self.combination):
            dims = list(self.layer.opt(position))
            if position >= count:
                for axis in self.layer.data_dependent[position - count]:
                    dims[axis] = -1
            desc = PluginTensorDesc(Dims(dims), layout.data_type, layout.tensor_format, layout.scale)
            desc.is_on_device = not self._lane.provider.memory.is_host
            if -1 in dims:
                desc.room = math.prod(packed_shape(self.layer.rooms[position], layout.tensor_format))
            descs.append(desc)
        return descs[:count], descs[count:]

    def synchronize(self) -> None:
        """Wait until everything that the runs put on the stream of the lane is done."""
        provider, stream = self._lane.provider, self._lane.stream
        call(provider.id, "synchronize", provider.synchronize if stream is None else stream.synchronize)

    def read_output(self, index: int) -> Any:
        """Return the memory of an output, in its physical layout; INT4 and FP4 as bytes of two elements."""
        assert self._arrays is not None  # noqa: S101 - allocated by the caller
        return self._arrays[self.layer.num_inputs + index].read()

    def find_overrun(self) -> str | None:
        """Return which memory a run wrote past, in words; None if it wrote past none."""
        names = [f"input {i}" for i in range(self.layer.num_inputs)]
        names += [f"output {i}" for i in range(len(self.layer.aliases))]
        memory = [*(self._arrays or ()), self._workspace]
        for name, array in zip([*names, "the workspace"], memory, strict=False):
            overrun = None if array is None else array.find_overrun()
            if overrun is not None:
                return f"{overrun} of {name}"
        return None

    def read_result(self) -> Result:
        """Return the outputs of the last run as plain float64 arrays for comparison."""
        assert self._arrays is not None  # noqa: S101 - allocated by compute
        count, results = self.layer.num_inputs, []
        for index, layout in enumerate(self.combination[count:]):
            if self.layer.data_dependent[index]:
                continue  # how much of it is valid differs legitimately in order; its size tensor is compared
            memory, shape, dtype = self._arrays[count + index].read(), self.layer.opt(count + index), layout.data_type
            if dtype.bits < 8:
                memory = unpack_nibbles(memory, dtype.numpy, math.prod(shape)).reshape(shape)
            array = unpack(memory, layout.tensor_format, shape).astype(np.float64)
            results.append(Output(dtype, array * layout.scale if layout.scale > 0 else array, layout.scale))
        return Result(tuple(results), tuple(layout.data_type for layout in self.combination[:count]))


def _make_input(index: int, layer: PluginLayer, layout: TensorSpec, integer: int | None) -> Any:
    """Return an input in the layout of a candidate: its known contents, or made-up numbers of the tuned shape."""
    rng, shape, dtype = make_generator(index), layer.opt(index), layout.data_type
    known = layer.contents[index]
    if known is not None:
        is_same = np.dtype(known.dtype) == dtype.numpy
        values = known if is_same else convert_type(known, dtype.numpy, target_scale=layout.scale)
    elif dtype.is_float or layout.scale > 0:
        numbers = _shared_numbers(rng, shape, layer.proposals[index])
        values = convert_type(numbers, dtype.numpy, target_scale=layout.scale)
    elif integer is not None:
        values = np.full(shape, integer, dtype.numpy)
    else:
        values = draw_integers(rng, shape, dtype.numpy)
    if dtype.bits < 8:
        return pack_nibbles(values)
    if not layout.is_linear:
        return pack(values, layout.tensor_format)
    return np.ascontiguousarray(values).reshape(values.shape)


def _shared_numbers(rng: np.random.Generator, shape: tuple[int, ...], layouts: Combination) -> Any:
    """Numbers that every type proposed for an input holds, so that no candidate starts from others; see ``agree``."""
    types = {layout.data_type for layout in layouts}
    scale = max((layout.scale for layout in layouts if layout.data_type is DataType.INT8), default=-1.0)
    if scale > 0:
        steps = 127 if DataType.FP8 not in types else max(1, min(127, int(448 / scale)))
        return rng.integers(-steps, steps + 1, shape).astype(np.float32) * np.float32(scale)
    numbers = draw_numbers(rng, shape)
    for dtype in (DataType.FP8, DataType.BF16, DataType.HALF):
        if dtype in types:
            numbers = numbers.astype(dtype.numpy).astype(np.float32)
    return numbers


def _output_memory(shape: tuple[int, ...], layout: TensorSpec) -> Any:
    if layout.data_type.bits < 8:
        return np.zeros(size_bytes(shape, layout.data_type, layout.tensor_format), np.uint8)
    return np.zeros(packed_shape(shape, layout.tensor_format), layout.data_type.numpy)


def dynamic_descs(layer: PluginLayer, combination: Combination) -> tuple[list[Any], list[Any]]:
    """Descriptors of inputs and of outputs with the bounds of the profile."""
    descs = [describe_tensor(*pair) for pair in zip(layer.tensors, combination, strict=True)]
    return descs[: layer.num_inputs], descs[layer.num_inputs :]


def workspace_descs(layer: PluginLayer, combination: Combination) -> tuple[list[Any], list[Any]]:
    """What the workspace is asked for: the whole profile, or the tuned shape alone where there is no bound."""
    if layer.is_bounded:
        return dynamic_descs(layer, combination)
    tuned = [TensorSpec.of(tensor.dtype, layer.opt(position)) for position, tensor in enumerate(layer.tensors)]
    descs = [describe_tensor(*pair) for pair in zip(tuned, combination, strict=True)]
    return descs[: layer.num_inputs], descs[layer.num_inputs :]
