"""Layers that look along axes: reduce, top-k, cumulative sums and the positions of what is not zero."""

# ruff: noqa: A002 - the contract names arguments after builtins

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import onnx_ir as ir

from dovetail.network.api.core import NetworkCore
from dovetail.network.api.enums import CumulativeOperation, LayerType, ReduceOperation, TopKOperation
from dovetail.network.api.layers.base import ILayer
from dovetail.network.api.properties import Property, choice, data_type, flag, integer, mask
from dovetail.network.inference.shapes import ir_type_from_data_type
from dovetail.types import DataType

if TYPE_CHECKING:
    from dovetail.network.api.emission import Emitter
    from dovetail.network.api.tensor import ITensor

__all__ = ["ICumulativeLayer", "INonZeroLayer", "IReduceLayer", "ITopKLayer", "ReduceLayers"]

_REDUCE: Final = {
    ReduceOperation.SUM: "ReduceSum",
    ReduceOperation.PROD: "ReduceProd",
    ReduceOperation.MAX: "ReduceMax",
    ReduceOperation.MIN: "ReduceMin",
    ReduceOperation.AVG: "ReduceMean",
}
_INDEX_TYPE = data_type(DataType.INT32, DataType.INT64)


class IReduceLayer(ILayer):
    """Joins the elements of some axes; NONE leaves the input as it is."""

    __slots__ = ()

    _layer_type = LayerType.REDUCE
    _kind = "Reduce"

    op = Property(choice(ReduceOperation), "How the elements are joined.")
    axes = Property(mask, "The axes as a bit mask.")
    keep_dims = Property(flag, "Whether the axes stay with size one.")

    def __init__(self, network: NetworkCore, tensor: ITensor, op: Any, axes: Any, keep_dims: Any) -> None:
        super().__init__(network, [tensor])
        self.op, self.axes, self.keep_dims = op, axes, keep_dims

    def _emit(self, e: Emitter) -> Sequence[ir.Value]:
        x = e.input(0)
        axes = e.axes(self.axes, e.rank(x))
        if self.op == ReduceOperation.NONE:
            return [e.op("Identity", x)]
        return [e.op(_REDUCE[self.op], x, e.ints(axes, "axes"), keepdims=int(self.keep_dims))]


class ITopKLayer(ILayer):
    """The k largest or smallest elements along an axis, and where they are. Input 1 takes the place of k."""

    __slots__ = ()

    _layer_type = LayerType.TOPK
    _kind = "TopK"
    _input_names = ("input", "k")
    _shape_inputs = frozenset({1})

    op = Property(choice(TopKOperation), "Whether the largest or the smallest are kept.")
    k = Property(integer(minimum=0), "How many are kept.", resets=1)
    axes = Property(mask, "The axis as a bit mask.")
    indices_type = Property(_INDEX_TYPE, "The type of the second output.")

    def __init__(self, network: NetworkCore, tensor: ITensor, op: Any, k: Any, axes: Any, indices: Any) -> None:
        super().__init__(network, [tensor], num_outputs=2)
        self.op, self.k, self.axes, self.indices_type = op, k, axes, indices

    def _emit(self, e: Emitter) -> Sequence[ir.Value]:
        x, given = e.input(0), e.optional_input(1)
        axis = e.one_axis(self.axes, e.rank(x))
        size = e.dims(x)[axis]
        if given is None and size is not None and self.k > size:
            raise e.error("'k' is larger than the axis", expected=f"at most {size}", got=self.k)
        count = e.ints([self.k], "k") if given is None else e.to_vector(e.int64(given))
        largest = None if self.op == TopKOperation.MAX else 0
        values, indices = e.ops("TopK", x, count, count=2, axis=axis, largest=largest)
        return [values, e.cast(indices, ir_type_from_data_type(self.indices_type))]


class ICumulativeLayer(ILayer):
    """Sums up along an axis, which input 1 gives."""

    __slots__ = ()

    _layer_type = LayerType.CUMULATIVE
    _kind = "Cumulative"
    _input_names = ("input", "axis")
    _required_inputs = 2

    op = Property(choice(CumulativeOperation), "What is accumulated.")
    exclusive = Property(flag, "Whether an element leaves itself out.")
    reverse = Property(flag, "Whether it starts from the end.")

    def __init__(self, network: NetworkCore, tensors: Sequence[ITensor], op: Any, exclusive: Any, reverse: Any) -> None:
        super().__init__(network, tensors)
        self.op, self.exclusive, self.reverse = op, exclusive, reverse

    def _emit(self, e: Emitter) -> Sequence[ir.Value]:
        x, axis = e.input(0), e.int64(e.input(1))
        known = e.constant_ints(axis)
        if known is not None and len(known) == 1:
            e.axis(known[0], e.rank(x))
        exclusive, reverse = int(self.exclusive) or None, int(self.reverse) or None
        return [e.op("CumSum", x, e.to_scalar(axis, "axis"), exclusive=exclusive, reverse=reverse)]


class INonZeroLayer(ILayer):
    """The positions of the elements that are not zero, as (rank, count)."""

    __slots__ = ()

    _layer_type = LayerType.NON_ZERO
    _kind = "NonZero"

    indices_type = Property(_INDEX_TYPE, "The type of the positions.")

    def __init__(self, network: NetworkCore, tensor: ITensor, indices: Any) -> None:
        super().__init__(network, [tensor])
        self.indices_type = indices

    def _emit(self, e: Emitter) -> Sequence[ir.Value]:
        return [e.cast(e.op("NonZero", e.input(0)), ir_type_from_data_type(self.indices_type))]


class ReduceLayers(NetworkCore):
    """The methods that add layers which look along axes."""

    __slots__ = ()

    def add_reduce(self, input: ITensor, op: ReduceOperation, axes: int, keep_dims: bool) -> IReduceLayer:
        """Add a reduction over the axes of a bit mask."""
        tensor = self._check_tensor(input, where="add_reduce", argument="input")
        return self._add_layer(IReduceLayer(self, tensor, op, axes, keep_dims))

    def add_topk(
        self,
        input: ITensor,
        op: TopKOperation,
        k: int,
        axes: int,
        indices_type: DataType = DataType.INT32,
    ) -> ITopKLayer:
        """Add a search for the k largest or smallest along one axis."""
        tensor = self._check_tensor(input, where="add_topk", argument="input")
        return self._add_layer(ITopKLayer(self, tensor, op, k, axes, indices_type))

    def add_cumulative(
        self,
        input: ITensor,
        axis: ITensor,
        op: CumulativeOperation,
        exclusive: bool,
        reverse: bool,
    ) -> ICumulativeLayer:
        """Add a running sum along the axis that a 0-D tensor names."""
        tensors = self._check_named("add_cumulative", input=input, axis=axis)
        return self._add_layer(ICumulativeLayer(self, tensors, op, exclusive, reverse))

    def add_non_zero(self, input: ITensor, indices_type: DataType = DataType.INT32) -> INonZeroLayer:
        """Add a search for what is not zero."""
        tensor = self._check_tensor(input, where="add_non_zero", argument="input")
        return self._add_layer(INonZeroLayer(self, tensor, indices_type))
