"""Layers that read or write by index: gather, scatter, one-hot and reversed sequences."""

# ruff: noqa: A002 - the contract names arguments after builtins

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from dovetail.network.api.core import NetworkCore
from dovetail.network.api.enums import GatherMode, LayerType, ScatterMode
from dovetail.network.api.layers.base import ILayer
from dovetail.network.api.properties import Property, choice, integer

if TYPE_CHECKING:
    from dovetail.network.api.emission import Emitter
    from dovetail.network.api.tensor import ITensor

__all__ = ["GatherLayers", "IGatherLayer", "IOneHotLayer", "IReverseSequenceLayer", "IScatterLayer"]


class IGatherLayer(ILayer):
    """Reads elements by index.

    DEFAULT takes whole slices along ``axis``; the first ``num_elementwise_dims`` dimensions of data and indices go
    together. ELEMENT takes one element for each index, ND reads the last dimension of the indices as positions.
    """

    __slots__ = ()

    _layer_type = LayerType.GATHER
    _kind = "Gather"
    _input_names = ("input", "indices")
    _required_inputs = 2

    axis = Property(integer(), "The axis that the indices count along; ND has none.")
    num_elementwise_dims = Property(integer(minimum=0), "How many leading dimensions go together.")
    mode = Property(choice(GatherMode), "How the indices are read.")

    def __init__(self, network: NetworkCore, tensors: Sequence[ITensor], axis: Any, mode: Any) -> None:
        super().__init__(network, tensors)
        self.axis, self.mode = axis, mode
        self.num_elementwise_dims = 0

    def _emit(self, e: Emitter) -> Sequence[ir.Value]:
        x, indices = e.input(0), e.input(1)
        e.require_type(indices, [ir.DataType.INT32, ir.DataType.INT64], "indices")
        batch = self.num_elementwise_dims
        if batch > min(e.rank(x), e.rank(indices)):
            raise e.error(
                "'num_elementwise_dims' is larger than a rank",
                expected=f"at most {min(e.rank(x), e.rank(indices))}",
                got=batch,
            )
        if self.mode == GatherMode.ND:
            return [self._gather_nd(e, x, indices, batch)]
        axis = e.axis(self.axis, e.rank(x))
        if self.mode == GatherMode.ELEMENT:
            e.require_rank(indices, e.rank(x), "indices")
            return [e.op("GatherElements", x, indices, axis=axis)]
        return [self._gather_batched(e, x, indices, axis, batch) if batch else e.op("Gather", x, indices, axis=axis)]

    def _gather_nd(self, e: Emitter, x: ir.Value, indices: ir.Value, batch: int) -> ir.Value:
        depth = e.dims(indices)[-1] if e.rank(indices) else None
        if e.rank(indices) == 0 or (depth is not None and depth > e.rank(x) - batch):
            raise e.error(
                "the last dimension of 'indices' is too large",
                expected=f"1 to {e.rank(x) - batch}",
                got=e.describe(indices),
            )
        return e.op("GatherND", x, e.int64(indices), batch_dims=batch or None)

    def _gather_batched(self, e: Emitter, x: ir.Value, indices: ir.Value, axis: int, batch: int) -> ir.Value:
        """Gather along one axis for each position of the leading dimensions: a GatherND with the axis moved up."""
        if axis < batch:
            raise e.error("'axis' is one of the elementwise dimensions", expected=f"at least {batch}", got=axis)
        rank, count = e.rank(x), e.rank(indices) - batch
        order = [*range(batch), axis, *(i for i in range(batch, rank) if i != axis)]
        last = e.op("Unsqueeze", e.int64(indices), e.ints([-1], "last"))
        y = e.op("GatherND", e.transpose(x, order), last, batch_dims=batch)
        # y is (batch, indices, the other axes); the indices belong where the axis was.
        before = [batch + count + i for i in range(axis - batch)]
        after = [batch + count + i for i in range(axis - batch, rank - batch - 1)]
        return e.transpose(y, [*range(batch), *before, *range(batch, batch + count), *after])


class IScatterLayer(ILayer):
    """Writes updates into a copy of the data: ELEMENT by index along ``axis``, ND by position."""

    __slots__ = ()

    _layer_type = LayerType.SCATTER
    _kind = "Scatter"
    _input_names = ("data", "indices", "updates")
    _required_inputs = 3

    axis = Property(integer(), "The axis that the indices count along; ND has none.")
    mode = Property(choice(ScatterMode), "How the indices are read.")

    def __init__(self, network: NetworkCore, tensors: Sequence[ITensor], mode: Any) -> None:
        super().__init__(network, tensors)
        self.mode = mode
        self.axis = 0

    def _emit(self, e: Emitter) -> Sequence[ir.Value]:
        data, indices, updates = e.input(0), e.input(1), e.input(2)
        e.require_same_type(data, updates)
        e.require_type(indices, [ir.DataType.INT32, ir.DataType.INT64], "indices")
        if self.mode == ScatterMode.ELEMENT:
            e.require_rank(indices, e.rank(data), "indices")
            e.require_rank(updates, e.rank(data), "updates")
            return [e.op("ScatterElements", data, indices, updates, axis=e.axis(self.axis, e.rank(data)))]
        return [e.op("ScatterND", data, e.int64(indices), updates)]


class IOneHotLayer(ILayer):
    """Writes the second of two values at the index along a new axis, and the first everywhere else."""

    __slots__ = ()

    _layer_type = LayerType.ONE_HOT
    _kind = "OneHot"
    _input_names = ("indices", "values", "depth")
    _required_inputs = 3
    _shape_inputs = frozenset({2})

    axis = Property(integer(), "Where the new axis goes.")

    def __init__(self, network: NetworkCore, tensors: Sequence[ITensor], axis: Any) -> None:
        super().__init__(network, tensors)
        self.axis = axis

    def _emit(self, e: Emitter) -> Sequence[ir.Value]:
        indices, values, depth = e.input(0), e.input(1), e.input(2)
        e.require_rank(values, 1, "values")
        if e.dims(values)[0] not in (2, None):
            raise e.error("'values' must be (off, on)", expected="2 elements", got=e.describe(values))
        axis = e.axis(self.axis, e.rank(indices) + 1)
        return [e.op("OneHot", indices, e.to_scalar(e.int64(depth), "depth"), values, axis=axis)]


class IReverseSequenceLayer(ILayer):
    """Reverses the first ``sequence_lens`` elements of each sequence."""

    __slots__ = ()

    _layer_type = LayerType.REVERSE_SEQUENCE
    _kind = "ReverseSequence"
    _input_names = ("input", "sequence_lens")
    _required_inputs = 2

    batch_axis = Property(integer(), "The axis of the sequences.")
    sequence_axis = Property(integer(), "The axis along a sequence.")

    def __init__(self, network: NetworkCore, tensors: Sequence[ITensor]) -> None:
        super().__init__(network, tensors)
        self.batch_axis, self.sequence_axis = 1, 0

    def _emit(self, e: Emitter) -> Sequence[ir.Value]:
        x, lengths = e.input(0), e.int64(e.input(1))
        e.require_rank(lengths, 1, "sequence_lens")
        batch = e.axis(self.batch_axis, e.rank(x), "batch_axis")
        sequence = e.axis(self.sequence_axis, e.rank(x), "sequence_axis")
        if batch == sequence:
            raise e.error("'batch_axis' and 'sequence_axis' are the same", got=batch)
        if {batch, sequence} == {0, 1}:
            return [e.op("ReverseSequence", x, lengths, batch_axis=batch, time_axis=sequence)]
        # ONNX has sequences in the first two axes only.
        order = [batch, sequence, *(axis for axis in range(e.rank(x)) if axis not in (batch, sequence))]
        y = e.op("ReverseSequence", e.transpose(x, order), lengths, batch_axis=0, time_axis=1)
        return [e.transpose(y, [order.index(axis) for axis in range(e.rank(x))])]


class GatherLayers(NetworkCore):
    """The methods that add layers which read or write by index."""

    __slots__ = ()

    def add_gather(self, input: ITensor, indices: ITensor, axis: int) -> IGatherLayer:
        """Add a layer that takes slices along an axis."""
        tensors = self._check_named("add_gather", input=input, indices=indices)
        return self._add_layer(IGatherLayer(self, tensors, axis, GatherMode.DEFAULT))

    def add_gather_v2(self, input: ITensor, indices: ITensor, mode: GatherMode) -> IGatherLayer:
        """Add a layer that reads by index as ``mode`` says; the axis is 0 until it is set."""
        tensors = self._check_named("add_gather_v2", input=input, indices=indices)
        return self._add_layer(IGatherLayer(self, tensors, 0, mode))

    def add_scatter(self, data: ITensor, indices: ITensor, updates: ITensor, mode: ScatterMode) -> IScatterLayer:
        """Add a layer that writes updates into a copy of the data."""
        tensors = self._check_named("add_scatter", data=data, indices=indices, updates=updates)
        return self._add_layer(IScatterLayer(self, tensors, mode))

    def add_one_hot(self, indices: ITensor, values: ITensor, depth: ITensor, axis: int) -> IOneHotLayer:
        """Add a layer that turns indices into rows of ``depth`` values."""
        tensors = self._check_named("add_one_hot", indices=indices, values=values, depth=depth)
        return self._add_layer(IOneHotLayer(self, tensors, axis))

    def add_reverse_sequence(self, input: ITensor, sequence_lens: ITensor) -> IReverseSequenceLayer:
        """Add a layer that reverses the start of each sequence."""
        tensors = self._check_named("add_reverse_sequence", input=input, sequence_lens=sequence_lens)
        return self._add_layer(IReverseSequenceLayer(self, tensors))
