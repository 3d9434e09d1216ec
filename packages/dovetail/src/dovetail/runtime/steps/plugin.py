"""A plugin layer: descriptors, addresses and workspace for ``enqueue``, over the values of a frame.

The engine's own state is here and in what is bound, never in the plugin. One plugin object serves all frames of a
context, so it is told the shapes of a frame before it runs over that frame after another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dovetail.errors import InputError, PluginError
from dovetail.expr import Expr, Symbol
from dovetail.formats import pack_nibbles, packed_shape, unpack_nibbles
from dovetail.host_arrays import address_of
from dovetail.plan.manifest import StepRecord, ValueRecord
from dovetail.plugin.handle import PluginHandle
from dovetail.plugin.interfaces import APILanguage, PluginCapabilityType
from dovetail.plugin.native.unwritten import CheckedEnqueue, can_check_outputs
from dovetail.provider.interfaces import Provider
from dovetail.runtime.devices.streams import ContextDevices, ContextStream
from dovetail.runtime.memory.blocks import DeviceBlock, HostBlock
from dovetail.runtime.steps.base import Array, BoundStep, Step
from dovetail.runtime.steps.frame import Frame, Shape, Workspace
from dovetail.types import Dims, DynamicPluginTensorDesc, PluginTensorDesc

__all__ = ["PluginPort", "PluginStep"]

Descs = list[PluginTensorDesc]
Enqueue = Callable[[list[int], list[int], int], None]


class PluginPort:
    """What is fixed about one input or output of a plugin step."""

    __slots__ = (
        "alias",
        "dims",
        "dtype",
        "format",
        "index",
        "is_four_bit",
        "is_on_device",
        "placed",
        "scale",
        "sizes",
        "type",
    )

    def __init__(self, index: int, value: ValueRecord, sizes: Mapping[str, Expr]) -> None:
        self.index = index
        self.alias = value.alias
        self.dtype = np.dtype(value.dtype)
        self.type = value.data_type
        self.is_four_bit = self.type.bits < 8
        self.is_on_device = bool(value.memory)
        self.format = value.tensor_format
        self.scale = value.scale
        exprs = [dim for dim in value.dims or () if dim is not None]
        self.dims = exprs if len(exprs) == value.rank else None
        self.sizes = sizes
        self.placed = value.kind in ("planned", "output", "constant", "input")

    def describe(self, dims: Sequence[int]) -> PluginTensorDesc:
        """The descriptor for these dims."""
        desc = PluginTensorDesc(Dims(dims), self.type, self.format, self.scale)
        desc.is_on_device = self.is_on_device
        return desc

    @property
    def is_data_dependent(self) -> bool:
        """Whether the plugin itself tells a dimension, in a size tensor."""
        return self.dims is not None and any(isinstance(d, Symbol) and d.name in self.sizes for d in self.dims)


class PluginStep(Step):
    """One attached plugin in one context."""

    def __init__(
        self,
        record: StepRecord,
        values: Sequence[ValueRecord],
        handle: PluginHandle,
        *,
        in_body: bool = False,
        provider: Provider | None = None,
        devices: ContextDevices | None = None,
        queue: ContextStream | None = None,
    ) -> None:
        super().__init__(record)
        self._devices = devices
        self.device = provider
        """The device whose addresses and stream the plugin gets; None for the host."""
        self.handle = handle
        self.stream = 0 if queue is None else queue.handle
        """What the plugin gets as its stream."""
        self.in_body = in_body
        """Whether values of one run of this step may still be in use in its next."""
        self.sizes = {name: upper for name, upper in record.sizes.items() if upper is not None}
        """The upper bound of each size that the plugin tells."""
        self.inputs = [PluginPort(i, values[i], {}) for i in record.inputs]
        self.outputs = [PluginPort(i, values[i], self.sizes) for i in record.outputs]
        self.is_static = all(p.placed for p in self.inputs) and all(
            p.placed and not p.is_data_dependent and p.dims is not None for p in self.outputs
        )
        """Whether all shapes are known before the run."""
        self._address_of: Callable[[Any], int] = address_of if provider is None else _device_address
        self._workspace_query = _find_workspace_query(handle, record) if record.asks_workspace else None
        self._checks_outputs = provider is None and can_check_outputs(handle)
        self._aliased = frozenset(i for i, port in enumerate(self.outputs) if port.alias is not None)
        self._block: HostBlock | DeviceBlock = (
            HostBlock(None) if provider is None else DeviceBlock(provider, stream=queue)
        )
        """Scratch memory for shapes that only the run tells."""

    def find_workspace_bytes(self, shapes: Sequence[Shape | None] | None) -> int:
        """What the plan knows, or what the plugin says when shapes are known before the run."""
        if self._workspace_query is None or not self.is_static or shapes is None:
            return super().find_workspace_bytes(shapes)
        in_descs, out_descs = ([p.describe(shapes[p.index] or ()) for p in ports] for ports in self._ports)
        return self._query_workspace(self._workspace_query, in_descs, out_descs)

    @property
    def _ports(self) -> tuple[list[PluginPort], list[PluginPort]]:
        return self.inputs, self.outputs

    def bind(self, frame: Frame) -> BoundStep:
        """The plugin over a frame."""
        if not self.is_static:
            return self._bind_dynamic(frame)
        in_descs, out_descs = self._describe(self.inputs, frame), self._describe(self.outputs, frame)
        frame.announcers.append(lambda: self.handle.on_shape_change(in_descs, out_descs))
        if self.device is not None and self.handle.can_capture:
            frame.capturable.add(self)
        if self.device is None and any(port.is_four_bit for port in (*self.inputs, *self.outputs)):
            return self._bind_packed(frame, in_descs, out_descs)
        return self._bind_addresses(frame, in_descs, out_descs)

    def _bind_dynamic(self, frame: Frame) -> BoundStep:
        from dovetail.runtime.steps.dynamic_plugin import DynamicPlugin
        from dovetail.runtime.steps.plugin_buffers import DeviceBuffers, HostBuffers

        if self.device is None or self._devices is None:
            return DynamicPlugin(self, frame, HostBuffers(self)).run
        buffers = DeviceBuffers(self, self.device, self._devices)
        frame.closers.append(buffers.close)
        return DynamicPlugin(self, frame, buffers).run

    def _describe(self, ports: Sequence[PluginPort], frame: Frame) -> Descs:
        return [port.describe(frame.shapes[port.index] or ()) for port in ports]

    def _bind_addresses(self, frame: Frame, in_descs: Descs, out_descs: Descs) -> BoundStep:
        """The plugin over addresses that are taken as late as they have to be.

        Those of fixed values are taken now, and those of callers' values when these are put into the frame. With a
        dimension of 0 a run may still bring other shapes: there they are taken in the run.
        """
        values, find = frame.values, self._address_of
        in_slots, out_slots = [port.index for port in self.inputs], [port.index for port in self.outputs]
        inputs, outputs = [0] * len(in_slots), [0] * len(out_slots)
        is_fixed = frame.fixed.issuperset((*in_slots, *out_slots))
        is_late = not is_fixed and frame.is_loose

        def take_addresses() -> None:
            inputs[:] = [find(values[i]) for i in in_slots]
            outputs[:] = [find(values[i]) for i in out_slots]

        workspace = frame.workspaces.get(self, Workspace()).address

        enqueue = self.prepare_enqueue(in_descs, out_descs)

        def run() -> None:
            enqueue(inputs, outputs, workspace)

        def run_late() -> None:
            if frame.is_loose:
                self._check_shapes(values, (*in_descs, *out_descs))
            take_addresses()
            run()

        if is_fixed:
            take_addresses()
        elif not is_late:
            frame.placers.append(take_addresses)
        return run_late if is_late else run

    def _check_shapes(self, values: list[Any], descs: Sequence[PluginTensorDesc]) -> None:
        """Where a dimension is 0, an earlier step may have made another shape than the plugin was told."""
        for port, desc in zip((*self.inputs, *self.outputs), descs, strict=True):
            expected, array = packed_shape(desc.dims, port.format), values[port.index]
            if array is None or array.shape != expected:
                raise InputError(
                    "a dimension of an input is 0, and a shape that depends on it is not what the plan says",
                    where=f"step '{self.name}'",
                    expected=expected,
                    got=None if array is None else array.shape,
                    fix="pass inputs that are not empty",
                )

    def _bind_packed(self, frame: Frame, in_descs: Descs, out_descs: Descs) -> BoundStep:
        values, packing = frame.values, NibblePacking(self)
        workspace = frame.workspaces.get(self, Workspace()).address

        def run() -> None:
            self._check_shapes(values, (*in_descs, *out_descs))
            inputs, outputs = packing.pack(values, values)
            enqueue(inputs, outputs, workspace)
            packing.unpack(values)

        enqueue = self.prepare_enqueue(in_descs, out_descs)
        return run

    # the plugin's callbacks

    def prepare_enqueue(self, in_descs: Descs, out_descs: Descs, *, is_first: bool = True) -> Enqueue:
        """Return a function that runs the plugin over addresses and a workspace.

        Args:
            in_descs: Descriptors of the inputs.
            out_descs: Descriptors of the outputs.
            is_first: Whether these shapes are new, so that the first run of a C++ plugin on the host is checked for
                outputs that it does not write.
        """
        handle = self.handle
        call = _prepare_call(handle.runtime, in_descs, out_descs)
        check = CheckedEnqueue(handle, out_descs, self._aliased) if is_first and self._checks_outputs else None

        def run(inputs: list[int], outputs: list[int], workspace: int) -> None:
            nonlocal check
            if check is not None:
                first, check = check, None
                handle.check_status("enqueue", first.run(lambda: attempt(inputs, outputs, workspace), outputs))
                return
            try:
                returned = call(inputs, outputs, workspace, self.stream)  # another in each run, if the caller likes
            except Exception as error:
                raise handle.describe_failure("enqueue", error) from error
            if returned is not None:
                handle.check_status("enqueue", returned)

        def attempt(inputs: list[int], outputs: list[int], workspace: int) -> Any:
            try:
                return call(inputs, outputs, workspace, self.stream)
            except Exception as error:
                raise handle.describe_failure("enqueue", error) from error

        return run

    def ask_workspace(self, in_descs: Descs, out_descs: Descs) -> int | None:
        """Where scratch memory for shapes that only the run told is; None when the plan has a place for it."""
        if self._workspace_query is None:
            return None
        needed = self._query_workspace(self._workspace_query, in_descs, out_descs)
        self._block.reserve(needed)
        return self._block.address if needed else 0

    def close(self) -> None:
        """Give back memory of its own."""
        self._block.close()

    def _query_workspace(self, query: Callable[..., Any], in_descs: Descs, out_descs: Descs) -> int:
        try:
            return int(query(_fixed(in_descs), _fixed(out_descs)))
        except Exception as error:
            raise self.handle.describe_failure("get_workspace_size", error) from error


class NibblePacking:
    """The four-bit tensors of one plugin step as plugins see them: two elements to a byte."""

    def __init__(self, step: PluginStep) -> None:
        self._step = step
        self._packed: dict[int, Array] = {}

    def pack(
        self, inputs: Sequence[Any] | Mapping[int, Any], outputs: Sequence[Any] | Mapping[int, Any]
    ) -> tuple[list[int], list[int]]:
        """The addresses of inputs and outputs, four-bit ones packed."""
        step = self._step
        self._packed.clear()
        return (
            [self._address(port, inputs[port.index]) for port in step.inputs],
            [self._address(port, outputs[port.index]) for port in step.outputs],
        )

    def _address(self, port: PluginPort, array: Array) -> int:
        if not port.is_four_bit:
            return address_of(array)
        shared = self._packed.get(port.alias) if port.alias is not None else None
        packed = self._packed[port.index] = pack_nibbles(array) if shared is None else shared
        return address_of(packed)

    def unpack(self, outputs: Sequence[Any] | Mapping[int, Any]) -> None:
        """Bring what the plugin wrote into the arrays of its outputs."""
        for port in self._step.outputs:
            packed = self._packed.get(port.index)
            if packed is not None:
                target = outputs[port.index]
                target[...] = unpack_nibbles(packed, port.dtype, target.size).reshape(target.shape)


def _prepare_call(runtime: Any, in_descs: Descs, out_descs: Descs) -> Callable[..., Any]:
    """``enqueue`` with its descriptors: prepared once for a plugin in C++."""
    if getattr(runtime, "api_language", None) is APILanguage.CPP:
        prepared: Callable[..., Any] = runtime.prepare_enqueue(in_descs, out_descs)
        return prepared
    return lambda *arguments: runtime.enqueue(in_descs, out_descs, *arguments)


def _device_address(array: Any) -> int:
    address: int = array.address
    return address


def _find_workspace_query(handle: PluginHandle, record: StepRecord) -> Callable[..., Any] | None:
    """The plugin's own answer to how much workspace it needs, when its object has the build capability too."""
    try:
        capability = handle.plugin.get_capability_interface(PluginCapabilityType.BUILD)
    except Exception:  # noqa: BLE001 - objects of the runtime phase need not have it, and may say so in any way
        capability = None
    query: Callable[..., Any] | None = getattr(capability, "get_workspace_size", None)
    if query is None and record.workspace_bytes:
        raise PluginError(
            f"layer '{record.name}' needs workspace for shapes without a bound, and its object cannot say how much",
            where=handle.where,
            fix="build with an optimization profile, or return a build capability in the runtime phase too",
        )
    return query


def _fixed(descs: Sequence[PluginTensorDesc]) -> list[DynamicPluginTensorDesc]:
    """Descriptors whose bounds are the shape itself; sizes not known yet count as zero."""
    result = []
    for desc in descs:
        dims = [max(n, 0) for n in desc.dims]
        result.append(DynamicPluginTensorDesc(desc, dims, dims, dims))
    return result
