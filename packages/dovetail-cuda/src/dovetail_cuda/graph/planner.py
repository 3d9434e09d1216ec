"""From a partition to regions: which values are stored, and which are part of the kernels that read them.

Operators are lowered in the order of the graph. What is computed element by element stays an expression until somebody
must have it in memory: the border, a product, a window that would compute it many times, or several readers of
something that is not cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from dovetail.provider.interfaces import PackedWeight
from dovetail_cuda.graph.anchors import make_anchor_region
from dovetail_cuda.graph.followers import Follower, can_follow, follow, joins_again, make_follower
from dovetail_cuda.graph.layout import can_read, choose_order
from dovetail_cuda.graph.merge import merge_siblings
from dovetail_cuda.graph.plan import Buffer, PartitionPlan
from dovetail_cuda.graph.regions import ElementRegion, Region, Stored
from dovetail_cuda.graph.symbols import find_sizes
from dovetail_cuda.graph.updates import find_update, make_update_region
from dovetail_cuda.graph.values import find_type, name_of, read_attribute
from dovetail_cuda.graph.written_attention import WrittenAttention, find_written
from dovetail_cuda.lower.attention import attend_written
from dovetail_cuda.lower.contents import find_contents, find_shape_contents, is_contents, make_contents_tensor
from dovetail_cuda.lower.expr import Apply, Expr, Load, walk
from dovetail_cuda.lower.index import Index, unflatten, unflatten_by
from dovetail_cuda.lower.registry import load_registry
from dovetail_cuda.lower.tensors import (
    Anchor,
    Lowered,
    Tensor,
    Update,
    make_buffer,
    make_weight,
    refuse,
)
from dovetail_cuda.run.packing import COLUMNS, pack

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["plan_partition"]

T = TypeVar("T")

_MANY_OPS: Final = 8
"""What is read several times is computed again as long as it takes fewer operations than this."""
_MOST_LOADS: Final = 16
_MOST_NODES: Final = 256
"""Expressions beyond these are stored, so that kernels stay of a size that compiles and runs well."""
_REPEATING: Final = frozenset(
    ("AveragePool", "Conv", "ConvTranspose", "CumProd", "CumSum", "Einsum", "Gemm", "LpPool", "MatMul", "MaxPool")
)
"""Operators that read an element of theirs many times."""


def plan_partition(
    model: ir.Model,
    keep: frozenset[str] = frozenset(),
    sizes: Mapping[str, int] = MappingProxyType({}),
    aliases: Mapping[str, str] = MappingProxyType({}),
) -> PartitionPlan:
    """Plan a partition; the model is changed by it.

    Args:
        model: The partition.
        keep: Weights that may be replaced, by name.
        sizes: What the dimensions are that inputs leave open: numbers, or sizes that vary.
        aliases: Output -> the input whose memory it is to get.

    Raises:
        ProviderError: Something in it is not for this back end.
    """
    return _Planner(model, keep, sizes, aliases).plan()


@dataclass
class _Origin:
    """The layers and operators that an expression is made of."""

    layers: tuple[str, ...] = ()
    ops: tuple[str, ...] = ()

    def __add__(self, other: _Origin) -> _Origin:
        return _Origin(tuple(dict.fromkeys((*self.layers, *other.layers))), (*self.ops, *other.ops))


@dataclass
class _Planner:
    model: ir.Model
    keep: frozenset[str]
    sizes: Mapping[str, int]
    wanted_aliases: Mapping[str, str]
    aliases: dict[str, str] = field(default_factory=dict)
    """Outputs that are written in the memory of an input."""
    regions: list[Region] = field(default_factory=list)
    buffers: dict[str, Buffer] = field(default_factory=dict)
    values: dict[ir.Value, Lowered] = field(default_factory=dict)
    origins: dict[ir.Value, _Origin] = field(default_factory=dict)
    arrays: dict[ir.Value, Any] = field(default_factory=dict)
    weights: dict[str, Any] = field(default_factory=dict)
    packed: dict[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    """The recipe and the sources of each weight that was made here."""
    followers: dict[ir.Value, Follower] = field(default_factory=dict)
    """Values of anchors that are not stored yet."""
    order: dict[ir.Node, int] = field(default_factory=dict)
    done: set[ir.Node] = field(default_factory=set)
    """Nodes that are lowered."""
    written: dict[ir.Node, WrittenAttention] = field(default_factory=dict)
    """Attention that is written out, by its last node."""

    def plan(self) -> PartitionPlan:
        from onnx_ir.passes import common

        common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(self.model)
        self.packed = {name: (COLUMNS, sources) for name, sources in merge_siblings(self.model).items()}
        graph = self.model.graph
        for value in graph.inputs:
            self._add_input(value)
        for value in graph.initializers.values():
            self._add_weight(value)
        self.order = {node: number for number, node in enumerate(graph)}
        self.written = {found.last: found for found in find_written(graph)}
        inside = {node for found in self.written.values() for node in found.inside}
        for node in graph:
            if node not in inside:
                self._lower(node)
        outputs = [self._find_output(value) for value in graph.outputs]
        used = {name for region in self.regions for name in region.buffers}
        return PartitionPlan(
            regions=self.regions,
            buffers={n: b for n, b in self.buffers.items() if n in used or b.kind in ("input", "output")},
            weights={name: self._pack(name, array) for name, array in self.weights.items() if name in used},
            inputs=[name_of(value) for value in graph.inputs],
            outputs=outputs,
            aliases=self.aliases,
        )

    def _pack(self, name: str, array: Any) -> Any:
        """A weight as the plan stores it: one that was made here says of what."""
        if name not in self.packed:
            return array
        recipe, sources = self.packed[name]
        return PackedWeight(array=array, sources=sources, recipe=recipe)

    # what comes in

    def _add_input(self, value: ir.Value) -> None:
        shape = find_sizes(value, self.sizes)
        self.values[value] = self._make(name_of(value), shape, find_type(value), "input")

    def _add_weight(self, value: ir.Value) -> None:
        if value.const_value is None:
            raise refuse(f"weight '{value.name}' has no numbers")
        array, name = value.const_value.numpy(), name_of(value)
        self.arrays[value] = array
        if name not in self.keep and array.size == 1 and value not in self.model.graph.outputs:
            made = make_weight(array, name)
            if made.buffer is None:
                self.values[value] = made
                return
        self.weights[name] = np.ascontiguousarray(array).reshape(array.shape)
        if all(self._is_host_input(use.node, use.idx) for use in value.uses()):
            return  # nobody reads it on the device, so that its type does not matter
        self.values[value] = self._make(name, array.shape, array.dtype.name, "weight")

    def _make(self, name: str, shape: Sequence[int], dtype: str, kind: str, order: Sequence[int] = ()) -> Tensor:
        tensor = make_buffer(name, shape, dtype, order)
        self.buffers[name] = Buffer(shape=tuple(shape), dtype=dtype, kind=kind)
        return tensor

    # nodes

    def _lower(self, node: ir.Node) -> None:
        contents = self._find_contents(node)
        if contents is not None:
            self._take_contents(node, contents)
            return
        written = self.written.get(node)
        nodes = [node] if written is None else [*written.inside, node]
        made = self._apply(node) if written is None else (self._attend(written),)
        origin = _Origin(tuple(n.name or n.op_type for n in nodes), tuple(map(_operator_name, nodes)))
        for value in [value for each in nodes for value in each.inputs]:
            if value is not None:
                origin = self.origins.get(value, _Origin()) + origin
        self.done.update(nodes)
        for value, result in zip(node.outputs, made, strict=False):
            if value.uses() or value.is_graph_output():
                self._settle(value, result, origin)

    def _find_contents(self, node: ir.Node) -> Any | None:
        """The elements of what a node makes, where it computes shapes."""
        if node.domain not in ("", "ai.onnx") or len(node.outputs) != 1:
            return None
        attributes = {name: read_attribute(value) for name, value in node.attributes.items()}
        if node.op_type in ("Shape", "Size"):
            first = node.inputs[0]
            given = None if first is None else self.values.get(first)
            return None if given is None else find_shape_contents(given.shape, node.op_type, attributes)
        arrays = [None if value is None else self._known_contents(value) for value in node.inputs]
        if not arrays or any(array is None for array in arrays):
            return None
        return find_contents(node.op_type, arrays, attributes)

    def _known_contents(self, value: ir.Value) -> Any | None:
        array = self.arrays.get(value)
        if array is None or name_of(value) in self.keep:
            return None
        return array if array.dtype == object or is_contents(array) else None

    def _take_contents(self, node: ir.Node, contents: Any) -> None:
        """Keep what a node makes as numbers; whoever reads it on the device has it computed there."""
        value = node.outputs[0]
        self.arrays[value] = contents
        self.done.add(node)
        origin = _Origin((node.name or node.op_type,), (node.op_type,))
        self._settle(value, make_contents_tensor(contents, find_type(value)), origin)

    def _apply(self, node: ir.Node) -> Sequence[Lowered]:
        """What an operator makes of its inputs, as part of the anchor before it where that can be."""
        attributes = {name: read_attribute(value) for name, value in node.attributes.items()}
        kernel = self._find_kernel(node).bind(attributes, len(node.outputs))
        before = self._find_follower(node)
        if before is not None:
            made = kernel(*self._read_all(node))
            after = follow(before, node, made, attributes) if isinstance(made, Tensor) else None
            if after is not None:
                self.followers[node.outputs[0]] = after
                return (after.tensor,)
        for value in node.inputs:
            if value in self.followers:
                self._store_follower(value)
        results = kernel(*self._read_all(node))
        return results if isinstance(results, tuple) else (results,)

    def _attend(self, written: WrittenAttention) -> Lowered:
        """Attention that is written out, as one."""
        nodes = (*written.inside, written.last)
        for value in [value for node in nodes for value in node.inputs]:
            if value in self.followers:
                self._store_follower(value)
        query, key = self._read_all(written.product)
        value = self._read(written.last, 1, written.last.inputs[1])
        mask = partial(self._mask, written) if written.between else None
        return attend_written(query, key, value, mask=mask, zeroes_blind=written.zeroes_blind)

    def _mask(self, written: WrittenAttention, scores: Tensor) -> Tensor:
        """What is done with scores between the product and the softmax."""
        known: dict[ir.Value | None, Any] = {written.product.outputs[0]: scores}
        made = scores
        for node in written.between:
            attributes = {name: read_attribute(value) for name, value in node.attributes.items()}
            inputs = [known[v] if v in known else self._read(node, n, v) for n, v in enumerate(node.inputs)]
            made = known[node.outputs[0]] = self._find_kernel(node).bind(attributes, 1)(*inputs)
        return made

    def _find_kernel(self, node: ir.Node) -> Any:
        domain = "" if node.domain == "ai.onnx" else node.domain
        opset = self.model.opset_imports.get(domain, 1)
        kernel = load_registry().find(node.op_type, domain, opset)
        if kernel is None:
            raise refuse(f"it has no operator {domain or 'ai.onnx'}::{node.op_type} at opset {opset}")
        return kernel

    def _is_host_input(self, node: ir.Node, index: int) -> bool:
        return index in self._find_kernel(node).host_inputs

    def _read_all(self, node: ir.Node) -> list[Any]:
        return [self._read(node, index, value) for index, value in enumerate(node.inputs)]

    def _read(self, node: ir.Node, index: int, value: ir.Value | None) -> Any:
        if value is None or value.name == "":
            return None
        if not self._is_host_input(node, index):
            return self.values[value]
        if value not in self.arrays or name_of(value) in self.keep:
            raise refuse(f"input {index} of {node.op_type} '{node.name}' must be known when the plan is built")
        return self.arrays[value]

    # what is stored

    def _settle(self, value: ir.Value, made: Lowered, origin: _Origin) -> None:
        """Keep a value as an expression, or store it."""
        self.origins[value] = origin
        if isinstance(made, Anchor):
            self.followers[value] = make_follower(made, f"{name_of(value)}.result")
            made = self.followers[value].tensor
        self.values[value] = made
        if value in self.followers:
            if not self._may_be_followed(value):
                self._store_follower(value)
        elif self._must_store(value, made):
            self._store(value, made)

    # followers of anchors

    def _find_follower(self, node: ir.Node) -> Follower | None:
        """The follower that an operator reads; where it reads those of several anchors, the earlier are stored."""
        if not can_follow(node):
            return None
        found = [value for value in node.inputs if value in self.followers]
        for value in found[:-1]:
            if value in self.followers and self.followers[value].name != self.followers[found[-1]].name:
                self._store_follower(value)
        return self.followers.get(found[-1]) if found else None

    def _may_be_followed(self, value: ir.Value) -> bool:
        nodes = {use.node for use in value.uses()}
        if value.is_graph_output() or not nodes:
            return False
        return can_follow(*nodes) if len(nodes) == 1 else joins_again(value, self.order)

    def _store_follower(self, value: ir.Value) -> None:
        """Have the kernel of an anchor store a follower; what else is made of its result wants that in memory too."""
        follower, name = self.followers.pop(value), name_of(value)
        others = [each for each, other in self.followers.items() if other.name == follower.name]
        if any(self._is_wanted(each) for each in others):
            plain = follower.plain
            self._write_anchor(plain, plain.name, "temporary", self.origins[value])
            if self._must_store(value, follower.tensor):
                self._store(value, follower.tensor)
        else:
            kind = "output" if value.is_graph_output() else "temporary"
            placed = replace(follower, order=choose_order(value, follower.tensor))
            self.values[value] = self._write_anchor(placed, name, kind, self.origins[value])
            self.origins[value] = _Origin()
        for each in others:
            del self.followers[each]

    def _is_wanted(self, value: ir.Value) -> bool:
        """Whether somebody reads it who was not lowered yet."""
        return value.is_graph_output() or any(use.node not in self.done for use in value.uses())

    def _write_anchor(self, follower: Follower, name: str, kind: str, origin: _Origin) -> Tensor:
        tensor = follower.tensor
        if tensor.count:
            self.regions.append(make_anchor_region(self, follower, name, origin.layers, origin.ops))
        return self._make(name, tensor.shape, tensor.dtype, kind, follower.order)

    # what is stored

    def _must_store(self, value: ir.Value, made: Tensor) -> bool:
        if value.is_graph_output():
            return True
        if made.buffer is not None:
            return False
        # Attention stores what it must have in memory itself.
        written = {node for each in self.written.values() for node in (each.product, each.last)}
        readers = [use.node for use in value.uses()]
        repeating = [node for node in readers if node.op_type in _REPEATING and node not in written]
        if repeating and not can_read(repeating, made):
            return True
        nodes = list(walk(_element(made)))
        num_loads, num_ops = (sum(isinstance(each, kind) for each in nodes) for kind in (Load, Apply))
        is_costly = num_ops >= _MANY_OPS and len(readers) > 1
        return is_costly or num_loads > _MOST_LOADS or len(nodes) > _MOST_NODES

    def _store(self, value: ir.Value, made: Tensor) -> Tensor:
        """Have a region write a value to memory."""
        name, origin = name_of(value), self.origins.get(value, _Origin())
        kind = "output" if value.is_graph_output() else "temporary"
        update = find_update(value, made, self.wanted_aliases)
        if update is not None:
            stored = self._write_update(name, update, origin)
        else:
            stored = self._write(name, made, kind, choose_order(value, made), origin)
        self.values[value], self.origins[value] = stored, _Origin()
        return stored

    def _write_update(self, name: str, update: Update, origin: _Origin) -> Tensor:
        """Have a region write what changes of an input, which the output then is."""
        base = update.base
        if update.source.count:
            self.regions.append(make_update_region(name, update, origin.layers, origin.ops))
        self.aliases[name] = base.buffer or ""
        return self._make(name, base.shape, base.dtype, "output")

    def store_operand(self, name: str, operand: Tensor, order: Sequence[int] = ()) -> Tensor:
        """Have a region write an operand to memory, row by row with its dimensions in an order."""
        return self._write(name, operand, "temporary", order or range(operand.rank), _Origin(ops=("Expand",)))

    def _write(self, name: str, made: Tensor, kind: str, order: Sequence[int], origin: _Origin) -> Tensor:
        if made.count:
            flat = Index.variable("i", made.count)
            value = made.at(unflatten_by(flat, made.shape, order))
            stored = Stored(buffer=name, dtype=made.dtype, value=value, place=flat)
            region = ElementRegion(stored=(stored,), count=made.count, layers=origin.layers, ops=origin.ops)
            self.regions.append(region)
        return self._make(name, made.shape, made.dtype, kind, order)

    def pack_weight(self, source: str, recipe: str) -> str | None:
        """The buffer of a weight in another form, which the plan stores; None where it is no weight."""
        if source not in self.weights:
            return None
        made = (recipe, (source,))
        known = next((name for name, origin in self.packed.items() if origin == made), None)
        if known is not None:
            return known
        name, array = self._find_name(f"{source}.{recipe}"), pack(recipe, [self.weights[source]])
        self.weights[name], self.packed[name] = array, made
        self._make(name, array.shape, array.dtype.name, "weight")
        return name

    def _find_name(self, name: str) -> str:
        """A name that no value of the network has, whatever its author called them."""
        graph = self.model.graph
        taken = {value.name for node in graph for value in node.outputs}
        taken |= {*self.weights, *self.buffers, *(value.name for value in graph.inputs)}
        while name in taken:
            name += "'"
        return name

    def store_temporary(self, name: str, made: Lowered, op: str) -> Tensor:
        """Have a region write anything that is lowered to memory."""
        if isinstance(made, Anchor):
            return self._write_anchor(make_follower(made, f"{name}.result"), name, "temporary", _Origin(ops=(op,)))
        return self._write(name, made, "temporary", range(made.rank), _Origin(ops=(op,)))

    def make_region(self, follower: Follower, buffer: str, layers: tuple[str, ...], ops: tuple[str, ...]) -> Region:
        """The region that computes an anchor and stores what follows it."""
        return make_anchor_region(self, follower, buffer, layers, ops)

    def find_constant(self, buffer: str) -> Any | None:
        """The numbers of a weight that is not replaced."""
        return None if buffer in self.keep else self.weights.get(buffer)

    def collect(self, make: Callable[[], T]) -> tuple[list[Region], T]:
        """The regions that something has written, which do not become part of the plan; and its result."""
        kept, self.regions = self.regions, []
        try:
            made = make()
            return self.regions, made
        finally:
            self.regions = kept

    def _find_output(self, value: ir.Value) -> str:
        if name_of(value) not in self.buffers or self.buffers[name_of(value)].kind != "output":
            raise refuse(f"output '{value.name}' is nothing that is computed here")
        return name_of(value)


def _operator_name(node: ir.Node) -> str:
    """An operator, with its domain where that is not ONNX's.

    >>> import onnx_ir as ir
    >>> _operator_name(ir.Node("com.microsoft", "Gelu", [])), _operator_name(ir.Node("", "Gelu", []))
    ('com.microsoft::Gelu', 'Gelu')
    """
    return node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}::{node.op_type}"


def _element(tensor: Tensor) -> Expr:
    return tensor.at(unflatten(Index.variable("i", tensor.count), tensor.shape))
