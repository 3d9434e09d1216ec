"""A plugin layer some of whose shapes only the run tells: buffers as large as they can be, trimmed afterwards."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dovetail.errors import PlanError, PluginError
from dovetail.expr import Expr, Symbol, compile_expr, symbols_of
from dovetail.formats import packed_shape
from dovetail.runtime.steps.frame import Frame, Workspace
from dovetail.runtime.steps.plugin import PluginPort, PluginStep
from dovetail.runtime.steps.plugin_buffers import PluginBuffers, describe_mismatch
from dovetail.types import PluginTensorDesc, TensorFormat

__all__ = ["DynamicPlugin"]


class DynamicPlugin:
    """One such plugin step over one frame."""

    def __init__(self, step: PluginStep, frame: Frame, buffers: PluginBuffers) -> None:
        self._step = step
        self._frame = frame
        self._buffers = buffers
        self._rooms: list[int] = []
        """How many elements each output has room for."""
        self._announced: tuple[Any, ...] | None = None
        """The shapes that the plugin was told last."""
        self._is_first = False
        """Whether the next run is the first with the shapes that were announced last."""
        self._in_descs: list[PluginTensorDesc] = []
        self._out_descs: list[PluginTensorDesc] = []
        self._workspace = frame.workspaces.get(step, Workspace()).address
        frame.announcers.append(self._forget)

    def _forget(self) -> None:
        """Have the next run tell the plugin its shapes, whatever they are."""
        self._announced = None

    def run(self) -> None:
        """Run the plugin once."""
        values, step = self._frame.values, self._step
        arrays = {port.index: self._buffers.take(values, port) for port in step.inputs}
        dims = [self._output_dims(port) for port in step.outputs]
        self._allocate(values, dims)
        self._announce(arrays, dims)
        for desc, room in zip(self._out_descs, self._rooms, strict=True):
            desc.room = room
        self._buffers.run(arrays, self._enqueue)
        self._finish(values)

    def _enqueue(self, inputs: list[int], outputs: list[int]) -> None:
        is_first, self._is_first = self._is_first, False
        enqueue = self._step.prepare_enqueue(self._in_descs, self._out_descs, is_first=is_first)
        enqueue(inputs, outputs, self._workspace)

    def _announce(self, arrays: dict[int, Any], dims: list[list[int]]) -> None:
        step = self._step
        shapes = (tuple(tuple(array.shape) for array in arrays.values()), tuple(map(tuple, dims)))
        if shapes == self._announced:
            return
        self._in_descs = [p.describe(self._logical(p, arrays[p.index])) for p in step.inputs]
        self._out_descs = [p.describe(d) for p, d in zip(step.outputs, dims, strict=True)]
        step.handle.on_shape_change(self._in_descs, self._out_descs)
        asked = step.ask_workspace(self._in_descs, self._out_descs)
        self._workspace = self._workspace if asked is None else asked
        self._announced, self._is_first = shapes, True

    def _logical(self, port: PluginPort, array: Any) -> Sequence[int]:
        if port.format is TensorFormat.LINEAR or port.dims is None:
            return tuple(array.shape)
        dims = [self._value(expr) for expr in port.dims]
        if packed_shape(dims, port.format) != tuple(array.shape):
            raise describe_mismatch(self._step, dims, array.shape)
        return dims

    def _output_dims(self, port: PluginPort) -> list[int]:
        if port.dims is None:
            raise PluginError("the shape of an output is not known", where=self._step.handle.where)
        return [-1 if self._is_size(dim) else self._value(dim) for dim in port.dims]

    def _is_size(self, dim: Expr) -> bool:
        return isinstance(dim, Symbol) and dim.name in self._step.sizes

    def _value(self, expr: Expr) -> int:
        names = sorted(symbols_of(expr))
        return compile_expr(expr, names)([self._frame.read_symbol(name) for name in names])

    def _allocate(self, values: list[Any], dims: list[list[int]]) -> None:
        self._rooms = []
        for port, known in zip(self._step.outputs, dims, strict=True):
            shape = [self._bound(port, axis) if n < 0 else n for axis, n in enumerate(known)]
            physical = packed_shape(shape, port.format)
            self._buffers.provide(values, port, physical)
            self._rooms.append(math.prod(physical))

    def _bound(self, port: PluginPort, axis: int) -> int:
        symbol = port.dims[axis] if port.dims is not None else None
        if not isinstance(symbol, Symbol):
            raise PlanError(f"step '{self._step.name}': dimension {axis} of an output is no size")
        return self._value(self._step.sizes[symbol.name])

    def _finish(self, values: list[Any]) -> None:
        """Put the outputs into the frame: sizes first, because the shapes of the others depend on them."""
        step, frame = self._step, self._frame
        places = {name: frame.symbols[name].value for name in step.sizes}
        sizes = self._buffers.read_sizes(list(dict.fromkeys(places.values())))
        frame.told.update({name: sizes[index] for name, index in places.items()})
        for port in step.outputs:
            values[port.index] = self._trim(port) if port.is_data_dependent else self._buffers.whole(port)

    def _trim(self, port: PluginPort) -> Any:
        """The part of an output that the plugin said it wrote: elements lie at the start of the buffer, in order."""
        actual = []
        for axis, expr in enumerate(port.dims or ()):
            value = self._value(expr)
            if self._is_size(expr):
                self._check_size(port, axis, value)
            actual.append(value)
        return self._buffers.trim(port, packed_shape(actual, port.format))

    def _check_size(self, port: PluginPort, axis: int, value: int) -> None:
        upper = self._bound(port, axis)
        if not 0 <= value <= upper:
            raise PluginError(
                f"the size tensor of output dimension {axis} is out of its bound",
                where=self._step.handle.where,
                expected=f"0 to {upper}",
                got=value,
                fix="write the true size, or declare a larger upper bound in get_output_shapes",
            )
