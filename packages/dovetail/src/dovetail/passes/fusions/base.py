"""What the fusions share: several nodes become one, for a provider that has a kernel for that one.

A pass says what it looks for. Everything else is the same for all and is here: whether the provider has the operator,
whether the nodes are its own, that no value inside is needed elsewhere, the opset, the new node and what it inherits.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import onnx_ir as ir

from dovetail.errors import InternalError
from dovetail.passes._graph import Array, add_initializer, layer_name, names_in, replace_output, walk_graphs
from dovetail.passes.base import Pass, PassResult
from dovetail.passes.opsets import Serves, explain_opset, model_opset, raise_opset
from dovetail.provider.origins import note_origins

__all__ = ["Accepts", "Attribute", "Fusion", "FusionPass", "Inserter", "Within", "always"]

Accepts = Callable[[str, str, int], bool]
"""Whether the provider has a kernel for an operator, a domain and an opset."""
Within = Callable[[ir.Node], bool]
"""Whether a node is of the provider's share."""
Attribute = int | float | str | tuple[int, ...]
"""What an attribute of a fused node can be."""


def always(*_facts: object) -> bool:
    """The answer of whoever has nothing against it."""
    return True


@dataclass(frozen=True, kw_only=True)
class Fusion:
    """Nodes that can become one."""

    root: ir.Node
    """The last of them; its first output is what the new node makes."""
    nodes: tuple[ir.Node, ...]
    """All of them, in any order."""
    inputs: tuple[ir.Value | None, ...]
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    shape: ir.Shape | None = None
    """The shape of the new node's output where it is not that of the root."""
    prepare: Callable[[Inserter], Sequence[ir.Value | None]] | None = None
    """Computes the inputs of the new node from ``inputs``, where they are not there yet."""


class Inserter:
    """Writes nodes and constants before a node, marked as its provider's."""

    def __init__(self, root: ir.Node, taken: set[str]) -> None:
        self._root = root
        self._taken = taken
        if not isinstance(root.graph, ir.Graph):
            raise InternalError(f"node '{root.name}' is in no graph", where="fusion")
        self._graph = root.graph

    def constant(self, name: str, array: Array) -> ir.Value:
        """A new constant."""
        return add_initializer(self._graph, name, array, ir.DataType.from_numpy(array.dtype), self._taken)

    def node(
        self,
        op: str,
        inputs: Sequence[ir.Value | None],
        *,
        like: ir.Value,
        shape: ir.Shape,
        **attributes: int | tuple[int, ...],
    ) -> ir.Value:
        """The output of a new node, of the type of another value."""
        name = self._unique(f"{like.name}_{op.lower()}")
        node = _make_node(op, inputs, attributes, self._root, f"{self._root.name}+{name}")
        value = node.outputs[0]
        value.name, value.type, value.shape = name, like.type, shape
        self._graph.insert_before(self._root, node)
        return value

    def _unique(self, name: str) -> str:
        unique, count = name, 2
        while unique in self._taken:
            unique, count = f"{name}_{count}", count + 1
        self._taken.add(unique)
        return unique


class FusionPass(Pass):
    """Replaces groups of nodes by one node of ``op``.

    Args:
        accepts: Whether the provider that the nodes are assigned to has a kernel for an operator, domain and opset.
        keep: Names of weights that must stay as they are, because they may be refitted.
        within: Whether a node is of that provider's share; a group with any other node is left alone.
        serves: Whether whoever has a node could still run it at a higher opset, asked before the model is raised.
    """

    op: ClassVar[str]
    """The operator of ONNX that groups become."""
    since: ClassVar[int]
    """The opset it is there from."""
    needs: ClassVar[tuple[str, ...]] = ()
    """Other operators that the pass may write."""

    def __init__(
        self,
        *,
        accepts: Accepts,
        keep: frozenset[str] = frozenset(),
        within: Within = always,
        serves: Serves = always,
    ) -> None:
        self.keep = keep
        self._accepts = accepts
        self._within = within
        self._serves = serves

    @abstractmethod
    def match(self, node: ir.Node) -> Fusion | None:
        """What can be fused around a node, if anything; who else reads what is inside need not be looked at."""

    def call(self, model: ir.Model) -> PassResult:
        """Fuse what can be fused; when the model cannot be raised to the opset of the operator, say so."""
        if not self._is_accepted(model):
            return PassResult(model=model)
        changed: list[str] = []
        taken: set[str] | None = None
        # Once more after a change, because what two groups shared may now belong to one.
        while (fusion := self._first(model)) is not None:
            problem = explain_opset(model, self._version(model), serves=self._serves)
            if not raise_opset(model, self._version(model), serves=self._serves):
                changed.append(f"left '{layer_name(fusion.root)}': {self.op} needs opset {self.since}, and {problem}")
                break
            taken = names_in(model) if taken is None else taken
            changed += self._sweep(model, taken)
        return PassResult(model=model, changed=changed)

    def ensures(self, model: ir.Model) -> None:
        """Nothing is left that could be fused, unless the model could not be raised."""
        if self._is_accepted(model) and model_opset(model) >= self.since:
            left = self._first(model)
            if left is not None:
                raise InternalError(f"'{layer_name(left.root)}' was not fused", where=f"pass '{self.name}'")

    def _version(self, model: ir.Model) -> int:
        return max(model_opset(model), self.since)

    def _is_accepted(self, model: ir.Model) -> bool:
        version = self._version(model)
        return all(self._accepts(op, "", version) for op in (self.op, *self.needs))

    def _first(self, model: ir.Model) -> Fusion | None:
        found = (self._find(node) for graph in walk_graphs(model.graph) for node in graph)
        return next((fusion for fusion in found if fusion is not None), None)

    def _sweep(self, model: ir.Model, taken: set[str]) -> list[str]:
        changed = []
        for graph in list(walk_graphs(model.graph)):
            for node in list(graph):
                fusion = self._find(node) if node.graph is graph else None
                if fusion is not None:
                    changed.append(f"fused {_list_layers(fusion)} into '{self._replace(fusion, taken)}'")
        return changed

    def allows(self, fusion: Fusion) -> bool:
        """Whether all nodes are in one graph and of the provider's share, and nothing inside is needed elsewhere."""
        graph = fusion.root.graph
        return all(each.graph is graph and self._within(each) for each in fusion.nodes) and _is_closed(fusion)

    def _find(self, node: ir.Node) -> Fusion | None:
        fusion = self.match(node)
        return fusion if fusion is not None and self.allows(fusion) else None

    def _replace(self, fusion: Fusion, taken: set[str]) -> str:
        graph, root = fusion.root.graph, fusion.root
        inputs = fusion.inputs if fusion.prepare is None else fusion.prepare(Inserter(root, taken))
        name = f"{root.name}+{self.name}"
        node = _make_node(self.op, inputs, fusion.attributes, root, name)
        note_origins(node, [root, *fusion.nodes], self.name)
        if not isinstance(graph, ir.Graph):
            raise InternalError(f"node '{root.name}' is in no graph", where=f"pass '{self.name}'")
        graph.insert_before(root, node)
        replace_output(root.outputs[0], node.outputs[0])
        if fusion.shape is not None:
            node.outputs[0].shape = fusion.shape
        graph.remove(_unique_nodes(fusion), safe=True)
        return name


def _make_node(
    op: str,
    inputs: Sequence[ir.Value | None],
    attributes: Mapping[str, Attribute],
    root: ir.Node,
    name: str,
) -> ir.Node:
    given = [_attribute(key, value) for key, value in attributes.items()]
    node = ir.Node("", op, inputs, given, num_outputs=1, name=name, metadata_props=dict(root.metadata_props))
    node.meta.update(root.meta)
    return node


def _attribute(name: str, value: Attribute) -> ir.Attr:
    if isinstance(value, str):
        return ir.AttrString(name, value)
    if isinstance(value, tuple):
        return ir.AttrInt64s(name, value)
    return ir.AttrInt64(name, value) if isinstance(value, int) else ir.AttrFloat32(name, value)


def _unique_nodes(fusion: Fusion) -> list[ir.Node]:
    return list(dict.fromkeys(fusion.nodes))


def _is_closed(fusion: Fusion) -> bool:
    """Whether nobody outside reads a value inside, nor the new node, which makes the root's first output alone."""
    nodes = set(fusion.nodes)
    inner = [value for node in nodes for value in node.outputs if value is not fusion.root.outputs[0]]
    if any(value in inner for value in fusion.inputs):
        return False
    return all(not value.is_graph_output() and all(use.node in nodes for use in value.uses()) for value in inner)


def _list_layers(fusion: Fusion) -> str:
    return ", ".join(f"'{layer_name(node)}'" for node in _unique_nodes(fusion))
