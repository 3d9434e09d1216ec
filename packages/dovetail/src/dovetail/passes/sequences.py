"""Takes sequences of tensors apart whose elements are known when a plan is built, so that only tensors are moved.

A sequence that is constructed, split, inserted into and erased from at known positions is a list of values. Who reads
an element then reads the value; the length is a constant, and a concatenation is one of these values. What depends on
a position of the run, on a loop or on a caller's sequence stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final

import numpy as np
import onnx_ir as ir

from dovetail.passes._graph import (
    add_initializer,
    constant_array,
    is_onnx,
    layer_name,
    names_in,
    replace_output,
    walk_graphs,
)
from dovetail.passes._match import dims_of, int_attribute, normalize_axis
from dovetail.passes.base import Pass, PassResult

__all__ = ["Sequences"]

_MOST_PARTS: Final = 1024
"""A tensor that is split into more than these stays a sequence."""
_MOVES_SINCE: Final = 13
"""The opset from which on sizes and axes are inputs of Split, Squeeze and Unsqueeze."""
_NOTE: Final = "dovetail."

Elements = tuple[ir.Value, ...]


class Sequences(Pass):
    """Replaces what is read of sequences that are known.

    Args:
        keep: Names of weights that must stay as they are, because they may be refitted.
    """

    name: ClassVar[str] = "sequences"

    def __init__(self, *, keep: frozenset[str] = frozenset()) -> None:
        self._keep = keep

    def call(self, model: ir.Model) -> PassResult:
        """Follow sequences in the order of the nodes, from graphs into the bodies inside of them."""
        opset = model.opset_imports.get("", model.opset_imports.get("ai.onnx", 1))
        known: dict[ir.Value, Elements] = {}
        names, changed = names_in(model), list[str]()
        for graph in walk_graphs(model.graph):
            changed += _Graph(graph, known, names, opset, self._keep).resolve()
        return PassResult(model=model, changed=changed)


class _Graph:
    """The sequences of one graph, with those that are known outside of it."""

    def __init__(
        self, graph: ir.Graph, known: dict[ir.Value, Elements], names: set[str], opset: int, keep: frozenset[str]
    ) -> None:
        self._graph = graph
        self._known = known
        self._names = names
        self._opset = opset
        self._keep = keep

    def resolve(self) -> list[str]:
        """Replace what is read of known sequences; a line for each."""
        changed = []
        for node in list(self._graph):
            if is_onnx(node, *_MAKERS):
                elements = _MAKERS[node.op_type](self, node)
                if elements is not None:
                    self._known[node.outputs[0]] = elements
            elif is_onnx(node, *_READERS) and node.inputs[0] in self._known:
                value = _READERS[node.op_type](self, node, self._known[node.inputs[0]])
                if value is not None:
                    self._replace(node, value)
                    changed.append(f"'{layer_name(node)}' ({node.op_type}) reads no sequence")
        return changed

    # what makes sequences

    def construct(self, node: ir.Node) -> Elements | None:
        """The inputs."""
        return tuple(value for value in node.inputs if value is not None)

    def copy(self, node: ir.Node) -> Elements | None:
        """Those of the input."""
        return self._elements_of(node)

    def insert(self, node: ir.Node) -> Elements | None:
        """With one more, before a position or at the end."""
        elements, tensor = self._elements_of(node), node.inputs[1]
        place = None if elements is None else self._find_place(node, 2, len(elements), default=len(elements))
        if elements is None or tensor is None or place is None:
            return None
        return (*elements[:place], tensor, *elements[place:])

    def erase(self, node: ir.Node) -> Elements | None:
        """Without one, or without the last."""
        elements = self._elements_of(node)
        place = None if elements is None else self._find_place(node, 1, len(elements) - 1, default=len(elements) - 1)
        return None if elements is None or place is None else (*elements[:place], *elements[place + 1 :])

    def split(self, node: ir.Node) -> Elements | None:
        """The parts of a tensor, made by a Split."""
        x, dims = node.inputs[0], dims_of(node.inputs[0])
        if x is None or not dims or self._opset < _MOVES_SINCE:
            return None
        axis = normalize_axis(int_attribute(node, "axis", 0), len(dims))
        sizes = self._find_sizes(node, dims[axis])
        if not sizes or len(sizes) > _MOST_PARTS:
            return None
        shapes = [[*dims[:axis], size, *dims[axis + 1 :]] for size in sizes]
        parts = self._add(node, "Split", [x, self._ints(node, sizes)], {"axis": axis}, x.dtype, shapes)
        if _has_split(node) or int_attribute(node, "keepdims", 1):
            return parts
        short = [[*dims[:axis], *dims[axis + 1 :]]]
        axes = self._ints(node, [axis])
        return tuple(self._add(node, "Squeeze", [part, axes], {}, x.dtype, short)[0] for part in parts)

    def _find_sizes(self, node: ir.Node, length: int | ir.SymbolicDim) -> list[int] | None:
        """The sizes of the parts, where they are known."""
        given = constant_array(node.inputs[1], self._keep) if _has_split(node) else np.array(1)
        if given is None or given.ndim > 1:
            return None
        if given.ndim == 1:
            sizes = [int(size) for size in given]
            return sizes if min(sizes, default=-1) >= 0 and (sum(sizes) == length) else None
        chunk = int(given)
        if chunk <= 0 or not isinstance(length, int):
            return None
        return [min(chunk, length - start) for start in range(0, length, chunk)]

    def _elements_of(self, node: ir.Node) -> Elements | None:
        return None if node.inputs[0] is None else self._known.get(node.inputs[0])

    # what reads sequences

    def at(self, node: ir.Node, elements: Elements) -> ir.Value | None:
        """The element at a position."""
        place = self._find_place(node, 1, len(elements) - 1)
        return None if place is None else elements[place]

    def count(self, node: ir.Node, elements: Elements) -> ir.Value:
        """How many there are."""
        name = f"{node.outputs[0].name}_length"
        return add_initializer(self._graph, name, np.array(len(elements)), ir.DataType.INT64, self._names)

    def concat(self, node: ir.Node, elements: Elements) -> ir.Value | None:
        """All of them along an axis, an old or a new one."""
        axis, is_new = int_attribute(node, "axis", 0), bool(int_attribute(node, "new_axis", 0))
        if not elements or (is_new and self._opset < _MOVES_SINCE):
            return None
        parts, dtype = elements, elements[0].dtype
        if is_new:
            axes = self._ints(node, [axis])
            parts = tuple(self._add(node, "Unsqueeze", [part, axes], {}, dtype, [None])[0] for part in elements)
        return self._add(node, "Concat", parts, {"axis": axis}, dtype, [None])[0]

    def _find_place(self, node: ir.Node, index: int, last: int, default: int | None = None) -> int | None:
        """The position that an input names, counted from the front; None where it is not known or there is none."""
        if len(node.inputs) <= index or node.inputs[index] is None:
            return default if default is None or default >= 0 else None
        array = constant_array(node.inputs[index], self._keep)
        if array is None or array.size != 1:
            return None
        place, count = int(array.reshape(())), last + (node.op_type != "SequenceInsert")
        place += count if place < 0 else 0
        return place if 0 <= place <= last else None

    # what is put in their place

    def _replace(self, node: ir.Node, value: ir.Value) -> None:
        """Have everybody read a value; what a caller reads or somebody left a note on keeps its name."""
        old = node.outputs[0]
        if old.is_graph_output() or any(key.startswith(_NOTE) for key in old.metadata_props):
            maker = value.producer()
            if maker is None or maker.graph is not self._graph or value.uses() or value.is_graph_output():
                (value,) = self._add(node, "Identity", [value], {}, value.dtype, [None])
            replace_output(old, value)
            old.name = None
        else:
            ir.convenience.replace_all_uses_with(old, value)
        self._graph.remove(node, safe=True)

    def _add(
        self,
        node: ir.Node,
        op: str,
        inputs: Sequence[ir.Value],
        attributes: Mapping[str, int],
        dtype: ir.DataType | None,
        shapes: Sequence[Sequence[int | ir.SymbolicDim] | None],
    ) -> Elements:
        """Put a node before another, which its layer is called by; gives its outputs."""
        kind = None if dtype is None else ir.TensorType(dtype)
        outputs = [
            ir.Value(name=self._unique(f"{node.outputs[0].name}_{op.lower()}"), type=kind, shape=_make_shape(shape))
            for shape in shapes
        ]
        given = [ir.AttrInt64(name, number) for name, number in attributes.items()]
        made = ir.Node("", op, inputs, given, outputs=outputs, name=self._unique(f"{layer_name(node)}/{op}"))
        self._graph.insert_before(node, made)
        return tuple(outputs)

    def _ints(self, node: ir.Node, numbers: Sequence[int]) -> ir.Value:
        name = f"{node.outputs[0].name}_numbers"
        return add_initializer(self._graph, name, np.array(numbers, np.int64), ir.DataType.INT64, self._names)

    def _unique(self, name: str) -> str:
        unique, count = name, 2
        while unique in self._names:
            unique, count = f"{name}_{count}", count + 1
        self._names.add(unique)
        return unique


def _has_split(node: ir.Node) -> bool:
    return len(node.inputs) > 1 and node.inputs[1] is not None


def _make_shape(dims: Sequence[int | ir.SymbolicDim] | None) -> ir.Shape | None:
    return None if dims is None else ir.Shape(dims)


_MAKERS: Final[Mapping[str, Callable[[_Graph, ir.Node], Elements | None]]] = {
    "Identity": _Graph.copy,
    "SequenceConstruct": _Graph.construct,
    "SequenceEmpty": _Graph.construct,
    "SequenceErase": _Graph.erase,
    "SequenceInsert": _Graph.insert,
    "SplitToSequence": _Graph.split,
}
_READERS: Final[Mapping[str, Callable[[_Graph, ir.Node, Elements], ir.Value | None]]] = {
    "ConcatFromSequence": _Graph.concat,
    "SequenceAt": _Graph.at,
    "SequenceLength": _Graph.count,
}
