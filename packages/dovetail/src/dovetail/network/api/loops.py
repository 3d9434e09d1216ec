"""Loops: boundary layers mark what enters, what is carried and what leaves; the layers between are the body.

A layer belongs to a loop when it depends on one of the loop's recurrences or iterators. The loop becomes one ONNX Loop;
``dovetail.network.api.control_flow`` writes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from dovetail.errors import UsageError
from dovetail.network.api.core import NetworkCore
from dovetail.network.api.enums import LayerType, LoopOutput, TripLimit
from dovetail.network.api.layers.base import ILayer
from dovetail.network.api.properties import Property, choice, flag, integer
from dovetail.network.api.tensor import ITensor
from dovetail.strict_attributes import StrictAttributes

if TYPE_CHECKING:
    from dovetail.network.api.emission import Emitter

__all__ = [
    "ConstructRecord",
    "IIteratorLayer",
    "ILoop",
    "ILoopBoundaryLayer",
    "ILoopOutputLayer",
    "IRecurrenceLayer",
    "ITripLimitLayer",
    "LoopLayers",
]


class ConstructRecord(ILayer):
    """Stands for a whole loop or conditional where nodes and messages need a layer; it is never added to a network."""

    __slots__ = ("_kind",)

    _layer_type = LayerType.TRIP_LIMIT

    def __init__(self, network: NetworkCore, kind: str, name: str) -> None:
        self._kind = kind
        super().__init__(network, [], num_outputs=0)
        self._name = name

    def _emit(self, e: Emitter) -> Sequence[ir.Value]:
        return []


class ILoopBoundaryLayer(ILayer):
    """A layer at the boundary of a loop."""

    __slots__ = ("_loop",)

    _is_boundary = True

    def __init__(self, loop: ILoop, tensors: Sequence[ITensor], *, num_outputs: int = 1) -> None:
        super().__init__(loop._network, tensors, num_outputs=num_outputs)
        self._loop = loop

    @property
    def loop(self) -> ILoop:
        """The loop it belongs to."""
        return self._loop

    # Inputs by where they must come from; the analysis of scopes reads these.

    def _entering(self) -> list[ITensor]:
        """Inputs that exist before the loop starts."""
        return []

    def _inner(self) -> list[ITensor]:
        """Inputs that may come from inside the loop."""
        return []


class ITripLimitLayer(ILoopBoundaryLayer):
    """What ends the loop: a count, or a condition that is looked at before each iteration."""

    __slots__ = ("_limit_kind",)

    _layer_type = LayerType.TRIP_LIMIT
    _kind = "TripLimit"
    _input_names = ("limit",)

    def __init__(self, loop: ILoop, tensor: ITensor, kind: TripLimit) -> None:
        super().__init__(loop, [tensor], num_outputs=0)
        self._limit_kind = kind

    @property
    def kind(self) -> TripLimit:
        """COUNT or WHILE."""
        return self._limit_kind

    def _entering(self) -> list[ITensor]:
        return self._dependencies() if self._limit_kind == TripLimit.COUNT else []

    def _inner(self) -> list[ITensor]:
        return self._dependencies() if self._limit_kind == TripLimit.WHILE else []

    def _emit(self, e: Emitter) -> Sequence[ir.Value]:
        return []


class IRecurrenceLayer(ILoopBoundaryLayer):
    """A value that each iteration hands to the next. Input 0 is the first value, input 1 the next one."""

    __slots__ = ("_sets_next",)

    _layer_type = LayerType.RECURRENCE
    _kind = "Recurrence"
    _input_names = ("initial", "next")

    def __init__(self, loop: ILoop, tensors: Sequence[ITensor], *, num_outputs: int = 1) -> None:
        self._sets_next = False
        super().__init__(loop, tensors, num_outputs=num_outputs)

    def set_input(self, index: int, tensor: ITensor | None) -> None:
        """Set the first value (0) or the next one (1)."""
        self._sets_next = index == 1
        super().set_input(index, tensor)

    def _changed(self) -> None:
        # Types and shapes follow from the first value, so the next one leaves what was found as it is.
        if self._sets_next:
            self._network._touch_model()
        else:
            super()._changed()

    def _dependencies(self) -> list[ITensor]:
        return self._entering()

    def _entering(self) -> list[ITensor]:
        return [tensor for tensor in self._inputs[:1] if tensor is not None]

    def _inner(self) -> list[ITensor]:
        return [tensor for tensor in self._inputs[1:2] if tensor is not None]

    def _emit(self, e: Emitter) -> Sequence[ir.Value]:
        first = e.input(0)
        return [e.placeholder(self._outputs[0], e.dtype(first), list(first.shape or ()))]


class IIteratorLayer(ILoopBoundaryLayer):
    """One slice of a tensor in each iteration, along an axis, from the start or from the end."""

    __slots__ = ()

    _layer_type = LayerType.ITERATOR
    _kind = "Iterator"

    axis = Property(integer(), "The axis that is walked along.")
    reverse = Property(flag, "Whether it starts at the last iteration's slice.")

    def __init__(self, loop: ILoop, tensor: ITensor, axis: Any, reverse: Any) -> None:
        super().__init__(loop, [tensor])
        self.axis, self.reverse = axis, reverse

    def _entering(self) -> list[ITensor]:
        return self._dependencies()

    def _emit(self, e: Emitter) -> Sequence[ir.Value]:
        x = e.input(0)
        axis = e.axis(self.axis, e.rank(x))
        rest = [dim for index, dim in enumerate(x.shape or ()) if index != axis]
        return [e.placeholder(self._outputs[0], e.dtype(x), rest)]


class ILoopOutputLayer(ILoopBoundaryLayer):
    """What leaves the loop.

    LAST_VALUE gives a recurrence after the last iteration. CONCATENATE and REVERSE give the values of all iterations
    along a new axis; input 1 is its length, which is filled up with zeros when there were fewer iterations.
    """

    __slots__ = ("_output_kind",)

    _layer_type = LayerType.LOOP_OUTPUT
    _kind = "LoopOutput"
    _input_names = ("value", "length")
    _shape_inputs = frozenset({1})

    axis = Property(integer(), "Where the new axis goes.")

    def __init__(self, loop: ILoop, tensor: ITensor, kind: LoopOutput, axis: Any) -> None:
        super().__init__(loop, [tensor])
        self._output_kind = kind
        self.axis = axis

    @property
    def kind(self) -> LoopOutput:
        """LAST_VALUE, CONCATENATE or REVERSE."""
        return self._output_kind

    def _entering(self) -> list[ITensor]:
        return [tensor for tensor in self._inputs[1:2] if tensor is not None]

    def _inner(self) -> list[ITensor]:
        return [tensor for tensor in self._inputs[:1] if tensor is not None]

    def _dependencies(self) -> list[ITensor]:
        count = self._loop._limit(TripLimit.COUNT)
        return [*super()._dependencies(), *([count] if count is not None else [])]

    def _emit(self, e: Emitter) -> Sequence[ir.Value]:
        x = e.input(0)
        dims: list[int | ir.SymbolicDim | None] = list(x.shape or ())
        if self._output_kind != LoopOutput.LAST_VALUE:
            dims.insert(e.axis(self.axis, e.rank(x) + 1), self._known_length(e))
        return [e.placeholder(self._outputs[0], e.dtype(x), dims)]

    def _known_length(self, e: Emitter) -> int | None:
        length, count = e.optional_input(1), self._loop._limit(TripLimit.COUNT)
        if length is None and count is not None and self._loop._limit(TripLimit.WHILE) is None:
            length = e[count]
        known = None if length is None else e.constant_ints(length)
        return known[0] if known is not None and len(known) == 1 else None


class ILoop(StrictAttributes):
    """A loop of a network, made by ``add_loop``."""

    __slots__ = ("_iterators", "_limits", "_loop_outputs", "_network", "_record", "_recurrences")

    def __init__(self, network: NetworkCore, index: int) -> None:
        self._network = network
        self._record = ConstructRecord(network, "Loop", f"(Unnamed Loop* {index})")
        self._limits: dict[TripLimit, ITripLimitLayer] = {}
        self._recurrences: list[IRecurrenceLayer] = []
        self._iterators: list[IIteratorLayer] = []
        self._loop_outputs: list[ILoopOutputLayer] = []

    @property
    def name(self) -> str:
        """The name; the node of the loop is named after it."""
        return self._record.name

    @name.setter
    def name(self, value: str) -> None:
        self._record.name = value

    def add_trip_limit(self, tensor: ITensor, kind: TripLimit) -> ITripLimitLayer:
        """Add what ends the loop: at most one COUNT (0-D integer) and one WHILE (0-D BOOL)."""
        where = self._where("add_trip_limit")
        limit = choice(TripLimit)(kind, where, "kind")
        checked = self._network._check_tensor(tensor, where=where, argument="tensor")
        if limit in self._limits:
            raise UsageError(f"the loop has a {limit.name} limit already", where=where)
        layer = self._network._add_layer(ITripLimitLayer(self, checked, limit))
        self._limits[limit] = layer
        for output in self._loop_outputs:  # the length of what is stacked may follow from the limit
            self._network._touch_layer(output)
        return layer

    def add_recurrence(self, initial_value: ITensor) -> IRecurrenceLayer:
        """Add a value that is carried; call ``set_input(1, next)`` on the layer."""
        checked = self._network._check_tensor(
            initial_value, where=self._where("add_recurrence"), argument="initial_value"
        )
        layer = self._network._add_layer(IRecurrenceLayer(self, [checked]))
        self._recurrences.append(layer)
        return layer

    def add_iterator(self, tensor: ITensor, axis: int = 0, reverse: bool = False) -> IIteratorLayer:
        """Add a walk along an axis of a tensor, one slice in each iteration."""
        checked = self._network._check_tensor(tensor, where=self._where("add_iterator"), argument="tensor")
        layer = self._network._add_layer(IIteratorLayer(self, checked, axis, reverse))
        self._iterators.append(layer)
        return layer

    def add_loop_output(self, tensor: ITensor, kind: LoopOutput, axis: int = 0) -> ILoopOutputLayer:
        """Add what leaves the loop."""
        where = self._where("add_loop_output")
        known = choice(LoopOutput)(kind, where, "kind")
        checked = self._network._check_tensor(tensor, where=where, argument="tensor")
        if known == LoopOutput.LAST_VALUE and checked._layer not in self._recurrences:
            raise UsageError(
                "LAST_VALUE takes the output of a recurrence of this loop",
                where=where,
                got=f"tensor '{checked.name}'",
                fix="pass recurrence.get_output(0); it gives the value after the last iteration",
            )
        layer = self._network._add_layer(ILoopOutputLayer(self, checked, known, axis))
        self._loop_outputs.append(layer)
        return layer

    def _where(self, method: str) -> str:
        return f"loop '{self.name}', {method}"

    def _limit(self, kind: TripLimit) -> ITensor | None:
        layer = self._limits.get(kind)
        return None if layer is None else layer.get_input(0)

    def _boundary(self) -> list[ILoopBoundaryLayer]:
        return [*self._limits.values(), *self._recurrences, *self._iterators, *self._loop_outputs]


class LoopLayers(NetworkCore):
    """The method that adds a loop."""

    __slots__ = ()

    def add_loop(self) -> ILoop:
        """Add a loop; its methods add the layers at its boundary."""
        loop = ILoop(self, len(self._constructs))
        self._constructs.append(loop)
        return loop
