"""Writing a loop as one ONNX Loop and a conditional as one ONNX If, each with its body as a nested graph.

The condition of a WHILE limit is looked at before each iteration, while ONNX takes what the body computed at its end.
So the layers behind the condition are written twice: before the loop with the first values, and at the end of the body
with the next ones.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import MutableMapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from dovetail.network.api.emission import INT64_MIN, Emitter
from dovetail.network.api.enums import LoopOutput, TripLimit
from dovetail.network.api.loops import IIteratorLayer, ILoop, ILoopOutputLayer
from dovetail.network.api.tensor import ITensor

if TYPE_CHECKING:
    from dovetail.network.api.assembly import Assembler
    from dovetail.network.api.conditionals import IIfConditional

__all__ = ["write_conditional", "write_loop"]

_Values = MutableMapping[ITensor, ir.Value]


def write_conditional(assembler: Assembler, conditional: IIfConditional) -> None:
    """Write a conditional and bind its outputs."""
    e = assembler.emitter
    if not conditional._conditional_outputs:
        return
    with e.writing(conditional._record):
        if conditional._condition is None:
            raise e.error("the conditional has no condition", fix="call set_condition")
        condition = _condition_value(e, e[_required(e, conditional._condition.get_input(0))])
        branches = [_write_branch(assembler, conditional, index) for index in (0, 1)]
        for layer, *values in zip(conditional._conditional_outputs, *(b.outputs for b in branches), strict=True):
            with e.writing(layer):
                layer._check_branches(e, *values)
        results = e.ops(
            "If", condition, count=len(branches[0].outputs), then_branch=branches[0], else_branch=branches[1]
        )
        for layer, value in zip(conditional._conditional_outputs, results, strict=True):
            e.bind(layer._outputs[0], value)


def _write_branch(assembler: Assembler, conditional: IIfConditional, index: int) -> ir.Graph:
    e = assembler.emitter
    targets = [_required(e, layer.get_input(index)) for layer in conditional._conditional_outputs]
    units = assembler.needed(targets, conditional)
    other = assembler.needed(
        [_required(e, layer.get_input(1 - index)) for layer in conditional._conditional_outputs], conditional
    )
    assembler.refuse_stray_assertions(conditional, [*units, *other])
    saved = e.push_block()
    for layer in conditional._conditional_inputs:
        e.alias(layer._outputs[0], e[_required(e, layer.get_input(0))])
    assembler.write(units, conditional)
    outputs = _outputs(e, [e[tensor] for tensor in targets])
    return _graph(e, [], outputs, saved, f"{conditional.name}/{('then', 'else')[index]}")


def write_loop(assembler: Assembler, loop: ILoop) -> None:
    """Write a loop and bind its outputs."""
    if loop._loop_outputs:
        with assembler.emitter.writing(loop._record):
            _LoopWriter(assembler, loop).write()


class _LoopWriter:
    """Writes one loop; the state is what several steps share."""

    def __init__(self, assembler: Assembler, loop: ILoop) -> None:
        self.assembler = assembler
        self.e = assembler.emitter
        self.loop = loop
        self.outside: _Values = self.e.values
        self.count = self._count()
        self.condition = loop._limit(TripLimit.WHILE)
        if self.count is None and self.condition is None:
            raise self.e.error("the loop has no end", fix="call add_trip_limit with COUNT or WHILE")
        self.first = [self.e[_required(self.e, layer.get_input(0))] for layer in loop._recurrences]

    def _count(self) -> ir.Value | None:
        tensor = self.loop._limit(TripLimit.COUNT)
        return None if tensor is None else self.e.to_scalar(self.e.int64(self.e[tensor]), "trip limit")

    def write(self) -> None:
        e, loop = self.e, self.loop
        if self.condition is None:
            start: ir.Value = e.constant(np.asarray(True), "condition")
        else:
            start = self._goes_on(self.first, None)
        scans = [layer for layer in loop._loop_outputs if layer.kind != LoopOutput.LAST_VALUE]
        body = self._write_body(scans)
        # With a condition the count is part of it, because the length of what is stacked is then not the count.
        limit = self.count if self.condition is None else None
        results = e.ops("Loop", limit, start, *self.first, count=len(self.first) + len(scans), body=body)
        stacked = dict(zip(scans, results[len(self.first) :], strict=True))
        for layer in loop._loop_outputs:
            with e.writing(layer):
                if layer in stacked:
                    value = self._arrange(layer, stacked[layer])
                else:
                    source = _required(e, layer.get_input(0))._layer
                    value = results[loop._recurrences.index(source)]  # type: ignore[arg-type]
                e.bind(layer._outputs[0], value)

    def _write_body(self, scans: Sequence[ILoopOutputLayer]) -> ir.Graph:
        e, loop = self.e, self.loop
        last: ir.Value | None = None
        if self.count is not None and any(layer.reverse for layer in loop._iterators):
            last = e.op("Sub", self.count, e.scalar(1, "one"))
        saved = e.push_block()
        iteration = ir.Value(
            name=e.unique(f"{loop.name}/iteration"), shape=ir.Shape([]), type=ir.TensorType(ir.DataType.INT64)
        )
        going = ir.Value(name=e.unique(f"{loop.name}/going"), shape=ir.Shape([]), type=ir.TensorType(ir.DataType.BOOL))
        carried = []
        for layer, first in zip(loop._recurrences, self.first, strict=True):
            value = e.placeholder(layer._outputs[0], e.dtype(first), list(first.shape or ()))
            e.alias(layer._outputs[0], value)
            carried.append(value)
        for iterator in loop._iterators:
            with e.writing(iterator):
                e.bind(iterator._outputs[0], self._slice(iterator, iteration, last))
        self.assembler.write(self.assembler.units(loop), loop)
        following = self._following()
        ending = e.op("Identity", going) if self.condition is None else self._goes_on(following, iteration)
        values = [ending, *following, *(e[_required(e, layer.get_input(0))] for layer in scans)]
        return _graph(e, [iteration, going, *carried], _outputs(e, values), saved, f"{loop.name}/body")

    def _following(self) -> list[ir.Value]:
        """The values that recurrences take next, checked against the first ones."""
        e, values = self.e, []
        for layer, first in zip(self.loop._recurrences, self.first, strict=True):
            with e.writing(layer):
                value = e[_required(e, layer.get_input(1), "input 1 (next)")]
                e.require_same_type(first, value)
                sizes, wanted = e.dims(value), e.dims(first)
                if len(sizes) != len(wanted) or any(
                    a != b for a, b in zip(sizes, wanted, strict=True) if a is not None and b is not None
                ):
                    raise e.error(
                        "the next value has another shape than the first",
                        expected=e.describe(first),
                        got=e.describe(value),
                    )
                values.append(value)
        return values

    def _slice(self, layer: IIteratorLayer, iteration: ir.Value, last: ir.Value | None) -> ir.Value:
        e, x = self.e, self.e[_required(self.e, layer.get_input(0))]
        axis = e.axis(layer.axis, e.rank(x))
        if not layer.reverse:
            return e.op("Gather", x, iteration, axis=axis)
        if last is None:
            raise e.error(
                "a reversed iterator needs to know how often the loop runs", fix="call add_trip_limit with COUNT"
            )
        return e.op("Gather", x, e.op("Sub", last, iteration), axis=axis)

    def _goes_on(self, values: Sequence[ir.Value], iteration: ir.Value | None) -> ir.Value:
        """Whether another iteration follows, computed from the values that it would start with.

        Args:
            values: What the recurrences would be.
            iteration: The iteration before; None when it would be the first.
        """
        e = self.e
        one = e.scalar(1, "one")
        index = e.scalar(0, "first") if iteration is None else e.op("Add", iteration, one)
        inside, e.values = e.values, ChainMap({}, self.outside)
        try:
            holds = self._condition_for(values, index)
        finally:
            e.values = inside
        if self.count is not None:
            holds = e.op("And", holds, e.op("Less", index, self.count))
        return holds

    def _condition_for(self, values: Sequence[ir.Value], index: ir.Value) -> ir.Value:
        e, tensor = self.e, _required(self.e, self.condition)
        for layer, value in zip(self.loop._recurrences, values, strict=True):
            e.alias(layer._outputs[0], value)
        units = self.assembler.needed([tensor], self.loop)
        for iterator in self.loop._iterators:
            e.alias(iterator._outputs[0], self._padded_slice(iterator, index))
        self.assembler.write(units, self.loop)
        return _condition_value(e, e[tensor])

    def _padded_slice(self, layer: IIteratorLayer, index: ir.Value) -> ir.Value:
        """A slice for an iteration that may not happen: one of zeros stands after the last."""
        e, x = self.e, self.e[_required(self.e, layer.get_input(0))]
        axis = e.axis(layer.axis, e.rank(x))
        pads = e.ints([1, 0], "before") if layer.reverse else e.ints([0, 1], "after")
        padded = e.op("Pad", x, pads, None, e.ints([axis], "axis"))
        if layer.reverse and self.count is not None:
            index = e.op("Sub", self.count, index)
        return e.op("Gather", padded, index, axis=axis)

    def _arrange(self, layer: ILoopOutputLayer, stacked: ir.Value) -> ir.Value:
        """Bring stacked values to the asked length, order and axis."""
        e = self.e
        length = layer.get_input(1)
        count = self.loop._limit(TripLimit.COUNT)
        if length is not None and (length is not count or self.condition is not None):
            stacked = _fit(e, stacked, e.to_vector(e.int64(e[length])))
        axes = e.ints([0], "axis")
        if layer.kind == LoopOutput.REVERSE:
            start, end, step = e.ints([-1], "start"), e.ints([INT64_MIN], "end"), e.ints([-1], "step")
            stacked = e.op("Slice", stacked, start, end, axes, step)
        axis = e.axis(layer.axis, e.rank(stacked))
        return e.transpose(stacked, [*range(1, axis + 1), 0, *range(axis + 1, e.rank(stacked))])


def _fit(e: Emitter, stacked: ir.Value, length: ir.Value) -> ir.Value:
    """Cut the first dimension to a length, or fill it up with zeros."""
    zero, axes = e.ints([0], "zero"), e.ints([0], "axis")
    cut = e.op("Slice", stacked, zero, e.op("Min", length, e.shape_of(stacked, 0, 1)), axes)
    missing = e.op("Sub", length, e.shape_of(cut, 0, 1))
    filled = e.op("Pad", cut, e.op("Concat", zero, missing, axis=0), None, axes)
    return e.reshape(filled, e.op("Concat", length, e.shape_of(stacked, 1), axis=0))


def _condition_value(e: Emitter, value: ir.Value) -> ir.Value:
    e.require_type(value, [ir.DataType.BOOL], "condition")
    return e.to_scalar(value, "condition")


def _required(e: Emitter, tensor: ITensor | None, name: str = "an input") -> ITensor:
    if tensor is None:
        raise e.error(f"{name} is not set", fix="call set_input")
    return tensor


def _outputs(e: Emitter, values: Sequence[ir.Value]) -> list[ir.Value]:
    """Values that can be outputs of the block being written: made in it, and each only once."""
    made = set(e.block)
    outputs: list[ir.Value] = []
    for value in values:
        fresh = value.producer() in made and value not in outputs
        outputs.append(value if fresh else e.op("Identity", value))
    return outputs


def _graph(
    e: Emitter,
    inputs: Sequence[ir.Value],
    outputs: Sequence[ir.Value],
    saved: tuple[list[ir.Node], _Values],
    name: str,
) -> ir.Graph:
    e.name_nodes(e.layer, [node for node in e.block if node.name is None], in_body=True)
    return ir.Graph(inputs, outputs, nodes=e.pop_block(saved), name=name)
