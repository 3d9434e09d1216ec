"""Conditionals: one of two branches runs. Layers that depend on an input of the conditional belong to a branch.

Which branch follows from the outputs: what the true output needs is the true branch, what the false output needs is the
false branch. The conditional becomes one ONNX If; ``dovetail.network.api.control_flow`` writes it.
"""

# ruff: noqa: A002 - the contract names arguments after builtins

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import onnx_ir as ir

from dovetail.errors import UsageError
from dovetail.network.api.core import NetworkCore
from dovetail.network.api.enums import LayerType
from dovetail.network.api.layers.base import ILayer
from dovetail.network.api.loops import ConstructRecord
from dovetail.network.api.tensor import ITensor
from dovetail.strict_attributes import StrictAttributes

if TYPE_CHECKING:
    from dovetail.network.api.emission import Emitter

__all__ = [
    "ConditionalLayers",
    "IConditionLayer",
    "IIfConditional",
    "IIfConditionalBoundaryLayer",
    "IIfConditionalInputLayer",
    "IIfConditionalOutputLayer",
]


class IIfConditionalBoundaryLayer(ILayer):
    """A layer at the boundary of a conditional."""

    __slots__ = ("_conditional",)

    _is_boundary = True

    def __init__(self, conditional: IIfConditional, tensors: Sequence[ITensor], *, num_outputs: int = 1) -> None:
        super().__init__(conditional._network, tensors, num_outputs=num_outputs)
        self._conditional = conditional

    @property
    def conditional(self) -> IIfConditional:
        """The conditional it belongs to."""
        return self._conditional

    def _entering(self) -> list[ITensor]:
        """Inputs that exist before a branch is chosen."""
        return self._dependencies()

    def _inner(self) -> list[ITensor]:
        """Inputs that may come from inside a branch."""
        return []


class IConditionLayer(IIfConditionalBoundaryLayer):
    """The condition: a 0-D BOOL tensor."""

    __slots__ = ()

    _layer_type = LayerType.CONDITION
    _kind = "Condition"
    _input_names = ("condition",)

    def _emit(self, e: Emitter) -> Sequence[ir.Value]:
        return []


class IIfConditionalInputLayer(IIfConditionalBoundaryLayer):
    """A tensor that enters the branches."""

    __slots__ = ()

    _layer_type = LayerType.CONDITIONAL_INPUT
    _kind = "ConditionalInput"

    def _emit(self, e: Emitter) -> Sequence[ir.Value]:
        return [e.op("Identity", e.input(0))]


class IIfConditionalOutputLayer(IIfConditionalBoundaryLayer):
    """A tensor that leaves the branch that ran."""

    __slots__ = ()

    _layer_type = LayerType.CONDITIONAL_OUTPUT
    _kind = "ConditionalOutput"
    _input_names = ("true_subgraph_output", "false_subgraph_output")
    _required_inputs = 2

    def _entering(self) -> list[ITensor]:
        return []

    def _inner(self) -> list[ITensor]:
        return self._dependencies()

    def _check_branches(self, e: Emitter, first: ir.Value, second: ir.Value) -> None:
        e.require_same_type(first, second)
        if e.rank(first) != e.rank(second):
            raise e.error(
                "the branches give tensors of different rank",
                expected=e.rank(first),
                got=f"{e.rank(second)}: {e.describe(first)} and {e.describe(second)}",
            )

    def _emit(self, e: Emitter) -> Sequence[ir.Value]:
        first, second = e.input(0), e.input(1)
        self._check_branches(e, first, second)
        pairs = zip(first.shape or (), second.shape or (), strict=True)
        return [e.placeholder(self._outputs[0], e.dtype(first), [a if a == b else None for a, b in pairs])]


class IIfConditional(StrictAttributes):
    """A conditional of a network, made by ``add_if_conditional``."""

    __slots__ = ("_condition", "_conditional_inputs", "_conditional_outputs", "_network", "_record")

    def __init__(self, network: NetworkCore, index: int) -> None:
        self._network = network
        self._record = ConstructRecord(network, "If", f"(Unnamed If* {index})")
        self._condition: IConditionLayer | None = None
        self._conditional_inputs: list[IIfConditionalInputLayer] = []
        self._conditional_outputs: list[IIfConditionalOutputLayer] = []

    @property
    def name(self) -> str:
        """The name; the node of the conditional is named after it."""
        return self._record.name

    @name.setter
    def name(self, value: str) -> None:
        self._record.name = value

    def set_condition(self, condition: ITensor) -> IConditionLayer:
        """Set what decides: a 0-D BOOL tensor."""
        where = self._where("set_condition")
        checked = self._network._check_tensor(condition, where=where, argument="condition")
        if self._condition is not None:
            raise UsageError(
                "the conditional has a condition already", where=where, fix="call set_input(0, tensor) on that layer"
            )
        self._condition = self._network._add_layer(IConditionLayer(self, [checked], num_outputs=0))
        return self._condition

    def add_input(self, input: ITensor) -> IIfConditionalInputLayer:
        """Let a tensor enter the branches; layers that use the result run only in their branch."""
        checked = self._network._check_tensor(input, where=self._where("add_input"), argument="input")
        layer = self._network._add_layer(IIfConditionalInputLayer(self, [checked]))
        self._conditional_inputs.append(layer)
        return layer

    def add_output(self, true_subgraph_output: ITensor, false_subgraph_output: ITensor) -> IIfConditionalOutputLayer:
        """Let a tensor leave: the first when the condition is true, else the second."""
        tensors = self._network._check_named(
            self._where("add_output"),
            true_subgraph_output=true_subgraph_output,
            false_subgraph_output=false_subgraph_output,
        )
        layer = self._network._add_layer(IIfConditionalOutputLayer(self, tensors))
        self._conditional_outputs.append(layer)
        return layer

    def _where(self, method: str) -> str:
        return f"conditional '{self.name}', {method}"

    def _boundary(self) -> list[IIfConditionalBoundaryLayer]:
        condition = [] if self._condition is None else [self._condition]
        return [*condition, *self._conditional_inputs, *self._conditional_outputs]


class ConditionalLayers(NetworkCore):
    """The method that adds a conditional."""

    __slots__ = ()

    def add_if_conditional(self) -> IIfConditional:
        """Add a conditional; its methods add the layers at its boundary."""
        conditional = IIfConditional(self, len(self._constructs))
        self._constructs.append(conditional)
        return conditional
