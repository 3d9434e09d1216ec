"""Fusions whose form is fixed enough to be written as patterns, and what the two normalizations have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, ClassVar, Final

import onnx_ir as ir

from dovetail.errors import InternalError
from dovetail.passes._graph import is_onnx
from dovetail.passes._match import (
    dims_of,
    int_attribute,
    ints_attribute,
    ints_of,
    normalize_axis,
    one_reader,
    producer_of,
    rank_of,
    same_dims,
    scalar_of,
)
from dovetail.passes.fusions.base import Accepts, Fusion, FusionPass, Within, always
from dovetail.passes.opsets import Serves

__all__ = ["Bindings", "NormalizationFusion", "PatternFusion", "deviation", "either"]

Bindings = dict[str, Any]
"""What the variables of a pattern stand for."""
Target = Callable[..., Any]
"""A function that writes a pattern, as onnxscript reads it."""

_STASHED: Final = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
"""Types whose statistics are computed in float32."""


class PatternFusion(FusionPass):
    """A fusion that looks for patterns, which are matched backwards from their last node."""

    roots: ClassVar[tuple[str, ...]]
    """The operators that a pattern ends in: other nodes are not looked at."""

    def __init__(
        self,
        *,
        accepts: Accepts,
        keep: frozenset[str] = frozenset(),
        within: Within = always,
        serves: Serves = always,
    ) -> None:
        super().__init__(accepts=accepts, keep=keep, within=within, serves=serves)
        self._nowhere = ir.Model(ir.Graph([], [], nodes=[]), ir_version=10)

    @cached_property
    def _patterns(self) -> list[Any]:
        """A matcher has state while it matches, so each pass has its own."""
        from onnxscript.rewriter import pattern  # it takes longer to import than most networks to build

        return [pattern.Pattern(target) for target in self.targets()]

    @abstractmethod
    def targets(self) -> Sequence[Target]:
        """The patterns to look for, in order."""

    def may_match(self, node: ir.Node) -> bool:
        """Whether a node is worth a closer look; to say so must be quick."""
        return True

    @abstractmethod
    def complete(self, root: ir.Node, nodes: Sequence[ir.Node], bound: Bindings) -> Fusion | None:
        """What a match comes to: the pattern knows operators and edges, and the rest is checked here."""

    def match(self, node: ir.Node) -> Fusion | None:
        """Try the patterns on a node."""
        if not is_onnx(node, *self.roots) or not self.may_match(node):
            return None
        if not isinstance(node.graph, ir.Graph):
            raise InternalError(f"node '{node.name}' is in no graph", where=f"pass '{self.name}'")
        for each in self._patterns:
            # The matcher takes the model for rules that ask for it; patterns do not.
            found = each.match(self._nowhere, node.graph, node, check_nodes_are_removable=False)
            fusion = self.complete(node, found.nodes, found.bindings) if found else None
            if fusion is not None:
                return fusion
        return None


def either(*forms: Any) -> Any:
    """The pattern of one of several forms."""
    from onnxscript.rewriter import pattern

    return pattern.OrValue(list(forms))


def deviation(op: Any, value: Any, exponent: Any, epsilon: Any) -> Any:
    """The pattern sqrt(mean(value ** 2) + epsilon)."""
    square = either(op.Pow(value, exponent), op.Mul(value, value))
    mean = op.ReduceMean(square, _allow_other_inputs=True, _outputs=["spread"])
    return op.Sqrt(either(op.Add(mean, epsilon), op.Add(epsilon, mean)))


class NormalizationFusion(PatternFusion):
    """A fusion of something that is divided by its deviation and then scaled."""

    roots = ("Div", "Mul")

    def may_match(self, node: ir.Node) -> bool:
        """Whether one of the inputs is a root, or one divided by it."""
        makers = [value.producer() for value in node.inputs if value is not None]
        return any(maker is not None and is_onnx(maker, "Sqrt", "Reciprocal", "Div") for maker in makers)

    def complete(self, root: ir.Node, nodes: Sequence[ir.Node], bound: Bindings) -> Fusion | None:
        """Check the statistics, and go on to the scale and what follows it."""
        x: ir.Value = bound["x"]
        axis = self._axis_of(bound["spread"].producer(), x)
        epsilon = scalar_of(bound["epsilon"], self.keep)
        if axis is None or epsilon is None or epsilon < 0 or not self.fits(bound):
            return None
        if bound.get("exponent") is not None and scalar_of(bound["exponent"], self.keep) != 2.0:
            return None
        if bound.get("one") is not None and scalar_of(bound["one"], self.keep) != 1.0:
            return None
        x, normal, casts = _leave_casts(x, root)
        scale = one_reader(normal.outputs[0], "Mul")
        if scale is None or x.dtype not in _STASHED:
            return None
        weights = _other_input(scale, normal.outputs[0])
        if not _covers(weights, x, axis):
            return None
        last, inputs = self.extend(scale, (x, weights), axis)
        return Fusion(
            root=last,
            nodes=tuple(dict.fromkeys((last, scale, normal, root, *casts, *nodes))),
            inputs=inputs,
            attributes={"axis": axis, "epsilon": epsilon, "stash_type": int(ir.DataType.FLOAT)},
        )

    def fits(self, bound: Bindings) -> bool:
        """What else must hold for a match."""
        return True

    def extend(
        self, scale: ir.Node, inputs: tuple[ir.Value | None, ...], axis: int
    ) -> tuple[ir.Node, tuple[ir.Value | None, ...]]:
        """The last node and the inputs, with what may follow the scale."""
        return scale, inputs

    def _axis_of(self, mean: ir.Node, x: ir.Value) -> int | None:
        """The axis from which on a mean is taken, counted from the end; None when it is not all axes from one on."""
        axes = ints_of(mean.inputs[1]) if len(mean.inputs) > 1 else ints_attribute(mean, "axes")
        rank = rank_of(x)
        if not axes or rank is None or not int_attribute(mean, "keepdims", 1):
            return None
        found = sorted(normalize_axis(axis, rank) for axis in axes)
        return found[0] - rank if found == list(range(found[0], rank)) else None


def _leave_casts(x: ir.Value, root: ir.Node) -> tuple[ir.Value, ir.Node, list[ir.Node]]:
    """Where statistics are computed in float32 and the result is cast back, the narrow value and the last cast."""
    before, after = producer_of(x, "Cast"), one_reader(root.outputs[0], "Cast")
    if before is None or after is None or x.dtype != ir.DataType.FLOAT:
        return x, root, []
    narrow = before.inputs[0]
    if narrow is None or narrow.dtype not in _STASHED or narrow.dtype != after.outputs[0].dtype:
        return x, root, []
    return narrow, after, [before]


def _other_input(node: ir.Node, value: ir.Value) -> ir.Value | None:
    return node.inputs[1] if node.inputs[0] is value else node.inputs[0]


def _covers(weights: ir.Value | None, x: ir.Value, axis: int) -> bool:
    """Whether weights have the sizes of the axes that are normalized."""
    dims = dims_of(x)
    return (
        weights is not None
        and dims is not None
        and same_dims(dims_of(weights), dims[axis:])
        and (weights.dtype == x.dtype)
    )
