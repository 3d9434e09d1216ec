"""A plugin layer bound for one context: descriptors, addresses, shape changes and sizes known after the run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from dovetail.errors import InputError, InternalError, PluginError, ProviderError
from dovetail.expr import Expr, Symbol, compile_expr, decode_expr, symbols_of
from dovetail.formats import pack_nibbles, packed_shape, unpack_nibbles
from dovetail.plan.manifest import StepRecord, ValueRecord
from dovetail.plugin.arrays import address_of
from dovetail.plugin.handle import PluginHandle
from dovetail.plugin.interfaces import PluginCapabilityType
from dovetail.provider.arena import aligned_empty
from dovetail.provider.interfaces import Provider
from dovetail.runtime.devices import DeviceBlock
from dovetail.runtime.steps import Array, Frame, share_memory, writable
from dovetail.types import DataType, Dims, DynamicPluginTensorDesc, PluginTensorDesc, TensorFormat, data_type_from_numpy

__all__ = ["PluginStep"]

SymbolReader = Callable[[str, Frame], int]


class _Port:
    """What is fixed about one input or output of a plugin step."""

    __slots__ = ("alias", "dims", "dtype", "format", "index", "is_four_bit", "placed", "scale", "sizes", "type")

    def __init__(self, index: int, value: ValueRecord, sizes: dict[str, Expr]) -> None:
        self.index = index
        self.alias = value.alias
        self.dtype = (
            np.dtype(DataType[value.dtype].numpy) if value.dtype in DataType.__members__ else np.dtype(value.dtype)
        )
        self.type = data_type_from_numpy(self.dtype)
        self.is_four_bit = self.type.bits < 8
        self.format = TensorFormat[value.format]
        self.scale = value.scale
        is_known = value.dims is not None and None not in value.dims
        self.dims = [decode_expr(d) for d in value.dims or ()] if is_known else None
        self.sizes = sizes
        self.placed = value.kind in ("planned", "output", "constant", "input")

    def describe(self, dims: Sequence[int]) -> PluginTensorDesc:
        return PluginTensorDesc(Dims(dims), self.type, self.format, self.scale)

    @property
    def is_data_dependent(self) -> bool:
        return self.dims is not None and any(isinstance(d, Symbol) and d.name in self.sizes for d in self.dims)


class PluginStep:
    """Calls one attached plugin; the engine's own state is here, never in the plugin."""

    def __init__(
        self,
        record: StepRecord,
        values: Sequence[ValueRecord],
        handle: PluginHandle,
        read_symbol: SymbolReader,
        *,
        in_body: bool = False,
        provider: Provider | None = None,
        stream: int = 0,
    ) -> None:
        self.name = record.name
        self.provider = provider
        """The device whose addresses and stream the plugin gets; None for the host."""
        self.handle = handle
        self.is_stale = True
        """Whether something this step touches was bound anew since it took its addresses."""
        self.is_checked = False
        """Whether shapes are to be compared with what the plugin was told before addresses are taken."""
        self.known_addresses: Mapping[int, int] = {}
        """Where values are, for those that were bound by address."""
        self.workspace = 0
        self.workspace_bytes = record.workspace_bytes
        self._workspace_query = _find_workspace_query(handle, record) if record.asks_workspace else None
        self._own_workspace = aligned_empty(0)
        self._device_workspace = None if provider is None else DeviceBlock(provider)
        self.stream = stream
        self._address_of: Callable[[Any], int] = address_of if provider is None else _device_address
        self._enqueue = handle.runtime.enqueue
        self._read_symbol = read_symbol
        self._sizes = {name: decode_expr(upper) for name, upper in record.sizes.items()}
        self._inputs = [_Port(i, values[i], {}) for i in record.inputs]
        self._outputs = [_Port(i, values[i], self._sizes) for i in record.outputs]
        self.is_static = all(p.placed for p in self._inputs) and all(
            p.placed and not p.is_data_dependent and p.dims is not None for p in self._outputs
        )
        if provider is not None:
            self._check_device(provider)
        self._has_four_bit = any(port.is_four_bit for port in (*self._inputs, *self._outputs))
        self._input_slots, self._output_slots = list(record.inputs), list(record.outputs)
        self._nibbles: dict[int, Array] = {}
        """Four-bit tensors as plugins see them: two elements to a byte."""
        self._in_body = in_body
        """Whether values of one run of this step may still be in use in its next."""
        self._buffers: dict[int, Array] = {}
        self._shapes: tuple[Any, ...] | None = None
        self._in_descs: list[PluginTensorDesc] = []
        self._out_descs: list[PluginTensorDesc] = []
        self._in_addresses: list[int] = []
        self._out_addresses: list[int] = []

    def _check_device(self, provider: Provider) -> None:
        is_plain = not any(port.is_four_bit for port in (*self._inputs, *self._outputs))
        if not (self.is_static and is_plain):
            raise ProviderError(
                "a plugin on a device needs shapes that are known before the run, and types of at least eight bits",
                where=f"provider '{provider.name}', step '{self.name}'",
                fix="leave the layer on the host",
            )

    @property
    def touched(self) -> frozenset[int]:
        """The values whose addresses this step has taken."""
        return frozenset(port.index for port in (*self._inputs, *self._outputs))

    def set_shapes(self, frame: Frame, shapes: Sequence[Sequence[int] | None]) -> None:
        """Take the logical shapes of a static step and tell the plugin; called before the first run and on changes."""
        if not self.is_static:
            self._shapes = None
            return
        self._in_descs = [port.describe(shapes[port.index] or ()) for port in self._inputs]
        self._out_descs = [port.describe(shapes[port.index] or ()) for port in self._outputs]
        self.is_stale = True
        self._announce()

    def repeat_shapes(self) -> None:
        """Tell the plugin the shapes that it has once more, as the contract asks when addresses change."""
        if self.is_static:
            self._announce()
        else:
            self._shapes = None

    def _announce(self) -> None:
        """Tell the plugin the shapes, and ask for workspace when the plan could not know it."""
        self.handle.on_shape_change(self._in_descs, self._out_descs)
        if self._workspace_query is not None:
            needed = self._query_workspace(self._workspace_query)
            self.workspace_bytes = 0
            self.workspace = self._find_workspace(needed) if needed else 0

    def _find_workspace(self, size_bytes: int) -> int:
        if self._device_workspace is not None:
            self._device_workspace.reserve(size_bytes)
            return self._device_workspace.address
        if size_bytes > self._own_workspace.nbytes:
            self._own_workspace = aligned_empty(size_bytes)
        return address_of(self._own_workspace)

    def _query_workspace(self, query: Callable[..., Any]) -> int:
        try:
            return int(query(_fixed(self._in_descs), _fixed(self._out_descs)))
        except Exception as error:
            raise self.handle.describe_failure("get_workspace_size", error) from error

    def _take_addresses(self, frame: Frame) -> None:
        if self.is_checked:
            self._check_shapes(frame)
        if self._has_four_bit:
            self._in_addresses = [self._address(port, frame[port.index]) for port in self._inputs]
            self._out_addresses = [self._address(port, frame[port.index]) for port in self._outputs]
        else:
            known, find = self.known_addresses, self._address_of
            self._in_addresses = [known[i] if i in known else find(frame[i]) for i in self._input_slots]
            self._out_addresses = [known[i] if i in known else find(frame[i]) for i in self._output_slots]
        self.is_stale = False

    def _check_shapes(self, frame: Frame) -> None:
        """Where a dimension is 0, an earlier step may have made another shape than the plugin was told."""
        for port, desc in zip((*self._inputs, *self._outputs), (*self._in_descs, *self._out_descs), strict=True):
            expected = packed_shape(desc.dims, port.format)
            if frame[port.index] is None or frame[port.index].shape != expected:
                raise InputError(
                    "a dimension of an input is 0, and a shape that depends on it is not what the plan says",
                    where=f"step '{self.name}'",
                    expected=expected,
                    got=None if frame[port.index] is None else frame[port.index].shape,
                    fix="pass inputs that are not empty",
                )

    def _address(self, port: _Port, array: Array) -> int:
        if not port.is_four_bit:
            return self._address_of(array)
        shared = self._nibbles.get(port.alias) if port.alias is not None else None
        packed = self._nibbles[port.index] = pack_nibbles(array) if shared is None else shared
        return address_of(packed)

    def __call__(self, frame: Frame) -> None:
        """Run the plugin once."""
        if not self.is_static:
            self._prepare_dynamic(frame)
        elif self.is_stale or self._nibbles:
            self._take_addresses(frame)
        try:
            returned = self._enqueue(
                self._in_descs, self._out_descs, self._in_addresses, self._out_addresses, self.workspace, self.stream
            )
        except Exception as error:
            raise self.handle.describe_failure("enqueue", error) from error
        if returned is not None:
            self.handle.check_status("enqueue", returned)
        if self._nibbles:
            self._unpack_nibbles(frame if self.is_static else self._buffers)
        if not self.is_static:
            self._finish_dynamic(frame)

    def bind(self, frame: Frame) -> Callable[[], None]:
        """The step over the addresses that it has, for as long as nothing of what it touches moves.

        A plugin may have ``bind_enqueue``, which takes the arguments of ``enqueue`` and gives a function without any.
        """
        if not self.is_static or self._has_four_bit:
            return partial(self, frame)
        if self.is_stale:
            self._take_addresses(frame)
        bind = getattr(self.handle.runtime, "bind_enqueue", None) or partial(partial, self._enqueue)
        described, places = (self._in_descs, self._out_descs), (self._in_addresses, self._out_addresses)
        handle, enqueue = self.handle, bind(*described, *places, self.workspace, self.stream)

        def run() -> None:
            try:
                returned = enqueue()
            except Exception as error:
                raise handle.describe_failure("enqueue", error) from error
            if returned is not None:
                handle.check_status("enqueue", returned)

        return run

    def _unpack_nibbles(self, arrays: Frame | dict[int, Array]) -> None:
        for port in self._outputs:
            packed = self._nibbles.get(port.index)
            if packed is not None:
                target = arrays[port.index]
                target[...] = unpack_nibbles(packed, port.dtype, target.size).reshape(target.shape)

    # shapes that only the run tells

    def _prepare_dynamic(self, frame: Frame) -> None:
        arrays = [self._contiguous(frame, port) for port in self._inputs]
        dims = [self._output_dims(port, frame) for port in self._outputs]
        key = (tuple(array.shape for array in arrays), tuple(map(tuple, dims)))
        self._allocate(frame, dims)
        self._in_addresses = [self._address(port, array) for port, array in zip(self._inputs, arrays, strict=True)]
        self._out_addresses = [self._address(port, self._buffers[port.index]) for port in self._outputs]
        if key != self._shapes:
            self._in_descs = [p.describe(self._logical(p, a, frame)) for p, a in zip(self._inputs, arrays, strict=True)]
            self._out_descs = [p.describe(d) for p, d in zip(self._outputs, dims, strict=True)]
            self._announce()
            self._shapes = key
        for port, desc in zip(self._outputs, self._out_descs, strict=True):
            desc.room = self._buffers[port.index].size

    def _contiguous(self, frame: Frame, port: _Port) -> Array:
        array: Array = frame[port.index]
        if type(array) is not np.ndarray or array.dtype != port.dtype:
            raise self._mismatch(port.dtype.name, getattr(array, "dtype", type(array).__name__))
        if not array.flags.c_contiguous:
            array = frame[port.index] = np.ascontiguousarray(array)
        return array

    def _mismatch(self, expected: object, got: object) -> InternalError:
        return InternalError(
            f"step '{self.name}' gets an input of another type or shape than the plan says", expected=expected, got=got
        )

    def _logical(self, port: _Port, array: Array, frame: Frame) -> Sequence[int]:
        if port.format is TensorFormat.LINEAR or port.dims is None:
            return array.shape
        dims = [self._value(expr, frame) for expr in port.dims]
        if packed_shape(dims, port.format) != array.shape:
            raise self._mismatch(dims, array.shape)
        return dims

    def _output_dims(self, port: _Port, frame: Frame) -> list[int]:
        if port.dims is None:
            raise PluginError("the shape of an output is not known", where=self.handle.where)
        is_size = [isinstance(d, Symbol) and d.name in self._sizes for d in port.dims]
        return [-1 if size else self._value(d, frame) for d, size in zip(port.dims, is_size, strict=True)]

    def _value(self, expr: Expr, frame: Frame) -> int:
        names = sorted(symbols_of(expr))
        return compile_expr(expr, names)([self._read_symbol(name, frame) for name in names])

    def _allocate(self, frame: Frame, dims: list[list[int]]) -> None:
        for port, known in zip(self._outputs, dims, strict=True):
            shape = [self._bound(port, axis, frame) if n < 0 else n for axis, n in enumerate(known)]
            self._buffers[port.index] = self._find_buffer(port, frame, packed_shape(shape, port.format))

    def _find_buffer(self, port: _Port, frame: Frame, physical: tuple[int, ...]) -> Array:
        placed: Array | None = frame[port.index] if port.placed and not port.is_data_dependent else None
        if placed is not None and placed.shape == physical:
            return placed
        if port.alias is not None:
            return share_memory(writable(frame[port.alias]), physical, port.dtype)
        buffer = self._buffers.get(port.index)
        if self._in_body or buffer is None or buffer.shape != physical:
            buffer = np.empty(physical, port.dtype)
        return buffer

    def _bound(self, port: _Port, axis: int, frame: Frame) -> int:
        assert port.dims is not None  # noqa: S101 - checked by _output_dims
        symbol = port.dims[axis]
        assert isinstance(symbol, Symbol)  # noqa: S101 - only size symbols are -1
        return self._value(self._sizes[symbol.name], frame)

    def _finish_dynamic(self, frame: Frame) -> None:
        for port in self._outputs:
            if not port.is_data_dependent:
                frame[port.index] = self._buffers[port.index]
        for port in self._outputs:
            if port.is_data_dependent:
                frame[port.index] = self._trim(port, frame)

    def _trim(self, port: _Port, frame: Frame) -> Array:
        """The part of an output that the plugin said it wrote: elements lie at the start of the buffer, in order."""
        assert port.dims is not None  # noqa: S101 - data-dependent outputs have dims
        actual = []
        for axis, expr in enumerate(port.dims):
            value = self._value(expr, frame)
            if isinstance(expr, Symbol) and expr.name in self._sizes:
                self._check_size(port, axis, value, frame)
            actual.append(value)
        flat = self._buffers[port.index].reshape(-1)
        physical = packed_shape(actual, port.format)
        return flat[: int(np.prod(physical, dtype=np.int64))].reshape(physical)

    def _check_size(self, port: _Port, axis: int, value: int, frame: Frame) -> None:
        upper = self._bound(port, axis, frame)
        if not 0 <= value <= upper:
            raise PluginError(
                f"the size tensor of output dimension {axis} is out of its bound",
                where=self.handle.where,
                expected=f"0 to {upper}",
                got=value,
                fix="write the true size, or declare a larger upper bound in get_output_shapes",
            )


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
