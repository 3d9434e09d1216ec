"""Convolutions and pools with channels last, for a provider that prefers them so and has the kernels.

Each such node becomes one of ``com.ms.internal.nhwc`` between two transposes. Then transposes move down through
elementwise nodes whose inputs all come from one, and meet: two that undo each other go away, so what is left stands
where a stretch of channels-last nodes begins and ends. Filters and vectors stay as they are in ONNX.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Final

import numpy as np
import onnx_ir as ir

from dovetail.errors import InternalError
from dovetail.passes._graph import add_initializer, constant_array, is_onnx, layer_name, names_in, walk_graphs
from dovetail.passes.base import Pass, PassResult
from dovetail.provider.origins import note_origins

__all__ = ["NHWC_DOMAIN", "LayoutPass"]

NHWC_DOMAIN: Final = "com.ms.internal.nhwc"

_OPS: Final = frozenset(
    (
        *("AveragePool", "BatchNormalization", "Conv", "ConvTranspose", "DepthToSpace", "GlobalAveragePool"),
        *("GlobalLpPool", "GlobalMaxPool", "GridSample", "InstanceNormalization", "LRN", "LpPool", "MaxPool"),
        "SpaceToDepth",
    )
)
_ELEMENTWISE: Final = frozenset(
    (
        *("Abs", "Ceil", "Celu", "Clip", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "Identity"),
        *("LeakyRelu", "Log", "Mish", "Neg", "Not", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Sqrt"),
        *("Softplus", "Softsign", "Swish", "Tanh", "ThresholdedRelu", "Cast"),
        *("Add", "And", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Mean", "Min"),
        *("Mul", "Or", "PRelu", "Pow", "Sub", "Sum", "Where", "Xor"),
    )
)

Perm = tuple[int, ...]
Accepts = Callable[[str, str, int], bool]
Within = Callable[[ir.Node], bool]


class LayoutPass(Pass):
    """Rewrites the share of one provider.

    Args:
        accepts: Whether the provider has a kernel for an operator, a domain and an opset; what it has none for is left
            as it is, so that nothing is asked of it that it cannot take.
        takes: Whether it would take a node again that is rewritten; it is asked only for what it has a kernel for.
        within: Whether a node is of the provider's share.
        keep: Names of weights that must stay as they are, because they may be refitted.
    """

    name: ClassVar[str] = "layout"

    def __init__(
        self,
        *,
        accepts: Accepts,
        within: Within,
        takes: Within = lambda node: True,
        keep: frozenset[str] = frozenset(),
    ) -> None:
        self._accepts = accepts
        self._takes = takes
        self._within = within
        self._keep = keep

    def call(self, model: ir.Model) -> PassResult:
        """Rewrite, move, cancel."""
        opset = model.opset_imports.get("", model.opset_imports.get("ai.onnx", 1))
        if not self._accepts("Transpose", "", opset):
            return PassResult(model=model, changed=["left all: the provider has no Transpose"])
        changed: list[str] = []
        names = names_in(model)
        for graph in walk_graphs(model.graph):
            rewriter = _Rewriter(graph, names, self._keep)
            moved = [node for node in list(graph) if self._is_candidate(node, opset) and rewriter.rewrite(node)]
            if not moved:
                continue
            changed += [f"put the channels of '{layer_name(node)}' last" for node in moved]
            sunk = sum(rewriter.sink(node) for node in list(graph) if self._is_elementwise(node))
            cancelled = rewriter.cancel()
            changed.append(f"moved transposes below {sunk} node(s), and {cancelled} of them cancelled")
        if changed:
            model.opset_imports[NHWC_DOMAIN] = opset
        return PassResult(model=model, changed=changed)

    def ensures(self, model: ir.Model) -> None:
        """No two transposes that undo each other are left next to each other."""
        for graph in walk_graphs(model.graph):
            for node in graph:
                before = _transpose_before(node)
                if before is not None and _is_undone(before, node):
                    raise InternalError(f"'{node.name}' was not cancelled", where=f"pass '{self.name}'")

    def _is_candidate(self, node: ir.Node, opset: int) -> bool:
        is_plain = is_onnx(node, *_OPS) and len(_used_outputs(node)) == 1 and self._within(node)
        is_known = is_plain and not _is_training(node) and self._accepts(node.op_type, NHWC_DOMAIN, opset)
        return is_known and self._takes(node)

    def _is_elementwise(self, node: ir.Node) -> bool:
        return is_onnx(node, *_ELEMENTWISE) and len(node.outputs) == 1 and self._within(node)


class _Rewriter:
    """The changes to one graph."""

    def __init__(self, graph: ir.Graph, names: set[str], keep: frozenset[str]) -> None:
        self._graph = graph
        self._names = names
        self._keep = keep

    def rewrite(self, node: ir.Node) -> bool:
        """Put a node between two transposes, with its channels last; False when its rank is not known."""
        image, result = node.inputs[0], node.outputs[0]
        rank = _find_rank(node)
        if image is None or rank is None or rank < 3:
            return False
        to_last = (0, *range(2, rank), 1)
        before = self._transpose(image, to_last, node)
        self._graph.insert_before(node, before)
        node.replace_input_with(0, before.outputs[0])
        node.domain = NHWC_DOMAIN
        self._transpose_after(node, result, to_last)
        return True

    def sink(self, node: ir.Node) -> bool:
        """Move the transposes before an elementwise node below it, where all its inputs agree."""
        perm = self._find_common_perm(node)
        if perm is None:
            return False
        inputs = [self._untransposed(value, perm) for value in node.inputs]
        for position, value in enumerate(inputs):
            node.replace_input_with(position, value)
        self._transpose_after(node, node.outputs[0], _inverse(perm))
        return True

    def _transpose_after(self, node: ir.Node, result: ir.Value, to_last: Perm) -> None:
        """Have a node make its result in the other layout, and a transpose turn it back for whoever reads it."""
        after = self._transpose(result, _inverse(to_last), node)
        self._graph.insert_after(node, after)
        made = after.outputs[0]
        made.name, name = result.name, made.name
        made.type, made.shape = result.type, result.shape
        made.metadata_props.update(result.metadata_props)
        made.meta.update(result.meta)
        ir.convenience.replace_all_uses_with(result, made, replace_graph_outputs=True)
        after.replace_input_with(0, result)  # the line above gave the transpose its own result to read
        result.name = name
        result.shape = _permuted(result.shape, to_last)

    def _find_common_perm(self, node: ir.Node) -> Perm | None:
        perms = set()
        for value in node.inputs:
            producer = None if value is None else value.producer()
            if producer is not None and is_onnx(producer, "Transpose"):
                if producer.graph is not self._graph or not self._moves_well(producer):
                    return None
                perms.add(_perm(producer))
        perm = perms.pop() if len(perms) == 1 else None
        return perm if perm and all(self._fits(value, perm) for value in node.inputs) else None

    def _moves_well(self, transpose: ir.Node) -> bool:
        """Whether everybody who reads it can do without it, so that moving it does not make two of one."""
        readers = [use.node for use in transpose.outputs[0].uses()]
        return not transpose.outputs[0].is_graph_output() and all(
            is_onnx(reader, "Transpose", *_ELEMENTWISE) and reader.graph is self._graph for reader in readers
        )

    def _fits(self, value: ir.Value | None, perm: Perm) -> bool:
        """Whether an input is turned by the same permutation, is one number, or is a weight that can be turned."""
        if value is None or (value.shape is not None and value.shape.rank() == 0):
            return True
        producer = value.producer()
        if producer is not None:
            return is_onnx(producer, "Transpose") and _perm(producer) == perm
        array = constant_array(value, self._keep)
        return array is not None and array.ndim <= len(perm)

    def _untransposed(self, value: ir.Value | None, perm: Perm) -> ir.Value | None:
        producer = None if value is None else value.producer()
        if producer is not None and is_onnx(producer, "Transpose"):
            return producer.inputs[0]
        array = constant_array(value, self._keep)
        if value is None or array is None or array.size == 1 or value.dtype is None:
            return value
        full = array.reshape((1,) * (len(perm) - array.ndim) + array.shape)
        return add_initializer(
            self._graph, f"{value.name}_turned", full.transpose(_inverse(perm)), value.dtype, self._names
        )

    def cancel(self) -> int:
        """Take pairs of transposes away that undo each other, and those that nobody reads."""
        count = 0
        for node in list(self._graph):
            before = _transpose_before(node)
            source = None if before is None else before.inputs[0]
            if before is None or source is None or not _is_undone(before, node):
                continue
            result = node.outputs[0]
            if result.is_graph_output():
                continue  # an output is made by a node of its own
            ir.convenience.replace_all_uses_with(result, source)
            self._graph.remove(node, safe=True)
            count += 1
        return count + self._drop_unread()

    def _drop_unread(self) -> int:
        """Take away the transposes that everybody does without now; of a chain the last one first."""
        count = 0
        for node in reversed(list(self._graph)):
            is_read = any(value.uses() or value.is_graph_output() for value in node.outputs)
            if is_onnx(node, "Transpose") and not is_read:
                self._graph.remove(node, safe=True)
                count += 1
        return count

    def _transpose(self, value: ir.Value, perm: Perm, node: ir.Node) -> ir.Node:
        name = self._unique(f"{value.name}_{'last' if perm[-1] == 1 else 'first'}")
        made = ir.Value(name=name, type=value.type, shape=_permuted(value.shape, perm))
        transpose = ir.Node(
            "",
            "Transpose",
            [value],
            [ir.AttrInt64s("perm", perm)],
            outputs=[made],
            name=self._unique(f"{node.name}/transpose"),
        )
        note_origins(transpose, [node], LayoutPass.name)
        return transpose

    def _unique(self, name: str) -> str:
        unique, count = name, 2
        while unique in self._names:
            unique, count = f"{name}_{count}", count + 1
        self._names.add(unique)
        return unique


def _used_outputs(node: ir.Node) -> list[ir.Value]:
    return [value for value in node.outputs if value.name and (value.uses() or value.is_graph_output())]


def _is_training(node: ir.Node) -> bool:
    mode = node.attributes.get("training_mode")
    return mode is not None and mode.as_int() != 0


def _find_rank(node: ir.Node) -> int | None:
    """How many dimensions the image has, from its shape, the filter's, or the size of the window."""
    for value in (node.inputs[0], node.outputs[0]):
        if value is not None and value.shape is not None:
            return value.shape.rank()
    if node.op_type in ("Conv", "ConvTranspose") and node.inputs[1] is not None:
        shape = node.inputs[1].shape
        return None if shape is None else shape.rank()
    window = node.attributes.get("kernel_shape")
    return None if window is None else len(window.as_ints()) + 2


def _transpose_before(node: ir.Node) -> ir.Node | None:
    """The transpose that a transpose reads from."""
    if not is_onnx(node, "Transpose") or node.inputs[0] is None:
        return None
    producer = node.inputs[0].producer()
    is_near = producer is not None and is_onnx(producer, "Transpose") and producer.graph is node.graph
    return producer if is_near else None


def _is_undone(first: ir.Node, second: ir.Node) -> bool:
    one, other = _perm(first), _perm(second)
    is_identity = len(one) == len(other) and all(one[axis] == i for i, axis in enumerate(other))
    return is_identity and bool(one) and not second.outputs[0].is_graph_output()


def _perm(node: ir.Node) -> Perm:
    """The permutation; empty when it is the one that ONNX leaves out, which turns all axes round."""
    attribute = node.attributes.get("perm")
    return () if attribute is None else tuple(attribute.as_ints())


def _inverse(perm: Sequence[int]) -> Perm:
    return tuple(int(axis) for axis in np.argsort(perm))


def _permuted(shape: ir.Shape | None, perm: Perm) -> ir.Shape | None:
    if shape is None or shape.rank() != len(perm):
        return None
    return ir.Shape([shape[axis] for axis in perm])
