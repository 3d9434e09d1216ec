"""From a partition to regions: which values are stored, and which are part of the kernels that read them.

Operators are lowered in the order of the graph. What is computed element by element stays an expression until somebody
must have it in memory: the border, a product, a window that would compute it many times, or several readers of
something that is not cheap.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dovetail.provider.interfaces import PackedWeight
from dovetail_cuda.graph.absorb import ABSORBED, absorb
from dovetail_cuda.graph.anchors import make_anchor_region
from dovetail_cuda.graph.merge import merge_siblings
from dovetail_cuda.graph.pending import FOLLOWERS, Pending, PendingConv, begin_conv, begin_rows, join, list_pending
from dovetail_cuda.graph.regions import ElementRegion, Region, Stored
from dovetail_cuda.lower.expr import Apply, Expr, Load, apply, walk
from dovetail_cuda.lower.images import CHANNELS_LAST, Image, find_image
from dovetail_cuda.lower.index import Index, Var, unflatten
from dovetail_cuda.lower.indexing import reshape_to
from dovetail_cuda.lower.matrices import find_matrix
from dovetail_cuda.lower.pointwise import map_elements
from dovetail_cuda.lower.registry import load_registry
from dovetail_cuda.lower.tensors import (
    Anchor,
    ConvTensor,
    Lowered,
    ProductTensor,
    RowTensor,
    Tensor,
    broadcast_to,
    make_buffer,
    make_constant,
    make_weight,
    refuse,
)
from dovetail_cuda.lower.types import size_of
from dovetail_cuda.run.packing import COLUMNS, FILTERS, TAPS, pack

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["Buffer", "PartitionPlan", "plan_partition"]

_MANY_OPS: Final = 8
"""What is read several times is computed again as long as it takes fewer operations than this."""
_MOST_LOADS: Final = 16
_MOST_NODES: Final = 256
"""Expressions beyond these are stored, so that kernels stay of a size that compiles and runs well."""
_REPEATING: Final = frozenset(
    ("AveragePool", "Conv", "ConvTranspose", "CumProd", "CumSum", "Einsum", "Gemm", "LpPool", "MatMul", "MaxPool")
)
"""Operators that read an element of theirs many times."""
_PRODUCTS: Final = frozenset(("Gemm", "MatMul"))
"""Those of them that can read what lies in a buffer with even strides as it is."""
_WINDOWED: Final = frozenset(
    ("AveragePool", "Conv", "ConvTranspose", "GlobalAveragePool", "GlobalMaxPool", "LpPool", "MaxPool")
)
"""Operators that read images best with their channels last."""


@dataclass(frozen=True, kw_only=True)
class Buffer:
    """Memory that regions read and write."""

    shape: tuple[int, ...]
    dtype: str
    kind: str
    """``input``, ``output``, ``weight``, ``temporary``, or ``zeroed`` for what is zero between runs."""

    @property
    def size_bytes(self) -> int:
        """How large it is."""
        return math.prod(self.shape) * size_of(self.dtype)


@dataclass(frozen=True, kw_only=True)
class PartitionPlan:
    """Regions in the order they run, and all the memory they name."""

    regions: Sequence[Region]
    buffers: dict[str, Buffer]
    weights: dict[str, Any]
    inputs: Sequence[str]
    outputs: Sequence[str]


def plan_partition(model: ir.Model, keep: frozenset[str] = frozenset()) -> PartitionPlan:
    """Plan a partition whose shapes are all known.

    Raises:
        ProviderError: Something in it is not for this back end.
    """
    return _Planner(model, keep).plan()


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
    regions: list[Region] = field(default_factory=list)
    buffers: dict[str, Buffer] = field(default_factory=dict)
    values: dict[ir.Value, Lowered] = field(default_factory=dict)
    origins: dict[ir.Value, _Origin] = field(default_factory=dict)
    arrays: dict[ir.Value, Any] = field(default_factory=dict)
    weights: dict[str, Any] = field(default_factory=dict)
    packed: dict[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    """The recipe and the sources of each weight that was made here."""
    pending: dict[str, Pending] = field(default_factory=dict)
    begun: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = field(default_factory=dict)
    """The layers and operators that what is pending is made of."""

    def plan(self) -> PartitionPlan:
        from onnx_ir.passes import common

        common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(self.model)
        self.packed = {name: (COLUMNS, sources) for name, sources in merge_siblings(self.model).items()}
        graph = self.model.graph
        for value in graph.inputs:
            self._add_input(value)
        for value in graph.initializers.values():
            self._add_weight(value)
        for node in graph:
            self._lower(node)
        outputs = [self._find_output(value) for value in graph.outputs]
        used = {name for region in self.regions for name in region.buffers}
        return PartitionPlan(
            regions=self.regions,
            buffers={n: b for n, b in self.buffers.items() if n in used or b.kind in ("input", "output")},
            weights={name: self._pack(name, array) for name, array in self.weights.items() if name in used},
            inputs=[_name(value) for value in graph.inputs],
            outputs=outputs,
        )

    def _pack(self, name: str, array: Any) -> Any:
        """A weight as the plan stores it: one that was made here says of what."""
        if name not in self.packed:
            return array
        recipe, sources = self.packed[name]
        return PackedWeight(array=array, sources=sources, recipe=recipe)

    # what comes in

    def _add_input(self, value: ir.Value) -> None:
        shape = _static_shape(value)
        self.values[value] = self._make(_name(value), shape, _dtype(value), "input")

    def _add_weight(self, value: ir.Value) -> None:
        if value.const_value is None:
            raise refuse(f"weight '{value.name}' has no numbers")
        array, name = value.const_value.numpy(), _name(value)
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
        attributes = {name: _attribute(value) for name, value in node.attributes.items()}
        self._store_pending(node)
        inputs = [self._read(node, index, value) for index, value in enumerate(node.inputs)]
        origin = _Origin((node.name or node.op_type,), (node.op_type,))
        for value in node.inputs:
            if value is not None:
                origin = self.origins.get(value, _Origin()) + origin
        absorbed = absorb(node.op_type, inputs, attributes) if node.op_type in ABSORBED else None
        results = absorbed or self._apply(node, attributes, inputs)
        made = results if isinstance(results, tuple) else (results,)
        for value, result in zip(node.outputs, made, strict=False):
            self._settle(value, result, origin)

    def _apply(self, node: ir.Node, attributes: dict[str, Any], inputs: Sequence[Any]) -> Any:
        kernel = self._find_kernel(node)
        settled = [
            self._store(value, each) if value is not None and isinstance(each, Anchor) else each
            for value, each in zip(node.inputs, inputs, strict=True)
        ]
        return kernel.bind(attributes, len(node.outputs))(*settled)

    def _find_kernel(self, node: ir.Node) -> Any:
        domain = "" if node.domain == "ai.onnx" else node.domain
        opset = self.model.opset_imports.get(domain, 1)
        kernel = load_registry().find(node.op_type, domain, opset)
        if kernel is None:
            raise refuse(f"it has no operator {domain or 'ai.onnx'}::{node.op_type} at opset {opset}")
        return kernel

    def _is_host_input(self, node: ir.Node, index: int) -> bool:
        return index in self._find_kernel(node).host_inputs

    def _read(self, node: ir.Node, index: int, value: ir.Value | None) -> Any:
        if value is None or value.name == "":
            return None
        if not self._is_host_input(node, index):
            return self.values[value]
        if value not in self.arrays or _name(value) in self.keep:
            raise refuse(f"input {index} of {node.op_type} '{node.name}' must be known when the plan is built")
        return self.arrays[value]

    # what is stored

    def _settle(self, value: ir.Value, made: Lowered, origin: _Origin) -> None:
        """Keep a value as an expression, or store it."""
        self.origins[value] = origin
        if isinstance(made, RowTensor | ConvTensor):
            made = self._begin(value, made)
        self.values[value] = made
        if isinstance(made, ProductTensor) and self._is_absorbed_next(value):
            return
        if not isinstance(made, Tensor) or self._must_store(value, made):
            self._store(value, made)

    def _is_absorbed_next(self, value: ir.Value) -> bool:
        uses = list(value.uses())
        return len(uses) == 1 and uses[0].node.op_type in ABSORBED and not value.is_graph_output()

    def _must_store(self, value: ir.Value, made: Tensor) -> bool:
        if value.is_graph_output():
            return True
        if made.buffer is not None:
            return False
        uses = [use.node.op_type for use in value.uses()]
        if set(uses) & _REPEATING and not _can_read(set(uses) & _REPEATING, made):
            return True
        element = _element(made)
        if list_pending(element, self.pending) and not (len(uses) == 1 and uses[0] in FOLLOWERS):
            return True
        nodes = list(walk(element))
        num_loads, num_ops = (sum(isinstance(each, kind) for each in nodes) for kind in (Load, Apply))
        is_costly = num_ops >= _MANY_OPS and len(uses) > 1
        return is_costly or num_loads > _MOST_LOADS or len(nodes) > _MOST_NODES

    def _store(self, value: ir.Value, made: Tensor | Anchor) -> Tensor:
        """Have a region write a value to memory."""
        name, origin = _name(value), self.origins.get(value, _Origin())
        kind, order = "output" if value.is_graph_output() else "temporary", self._choose_order(value, made)
        stored = self._make(name, made.shape, made.dtype, kind, order)
        if math.prod(made.shape):
            self.regions.append(self._make_region(name, made, order, origin))
        self.values[value], self.origins[value] = stored, _Origin()
        return stored

    def _make_region(self, name: str, made: Tensor | Anchor, order: Sequence[int], origin: _Origin) -> Region:
        """The region that computes a value: by the kernel of what is pending where that can be, else by one of its own."""
        if isinstance(made, Anchor):
            return make_anchor_region(self, name, made, origin.layers, origin.ops)
        found = list_pending(_element(made), self.pending)
        last = next((each for each in reversed(found) if isinstance(each, PendingConv)), found[-1] if found else None)
        for each in found:
            if each is not last:
                self._write_alone(each)
        joined = None if last is None else join(last, made, order)
        if last is None or joined is None:
            if last is not None:
                self._write_alone(last)
            stored = Stored(buffer=name, dtype=made.dtype, value=_element(made, order), place=_flat(made))
            return ElementRegion(stored=(stored,), count=made.count, layers=origin.layers, ops=origin.ops)
        del self.pending[last.name]
        return last.make_region(replace(joined, buffer=name), origin.layers, origin.ops)

    def _write_alone(self, pending: Pending) -> None:
        """Write what was pending to the buffer that stood for it."""
        del self.pending[pending.name]
        own = pending.tensor.at(pending.coordinates)
        if not isinstance(own, Load):
            raise refuse("what a kernel gives lies nowhere")
        stored = Stored(buffer=pending.name, dtype=pending.made.dtype, value=own, place=own.index)
        self.buffers[pending.name] = Buffer(shape=pending.tensor.shape, dtype=pending.made.dtype, kind="temporary")
        self.regions.append(pending.make_region(stored, *self.begun.pop(pending.name)))

    def _choose_order(self, value: ir.Value, made: Tensor | Anchor) -> tuple[int, ...]:
        """How a value lies: images for convolutions with their channels last, others as what they are made of."""
        plain, uses = tuple(range(len(made.shape))), {use.node.op_type for use in value.uses()}
        if value.is_graph_output() or isinstance(made, Anchor) or made.rank not in CHANNELS_LAST:
            return plain
        if uses & _WINDOWED:
            return CHANNELS_LAST[made.rank]
        return plain if uses & _PRODUCTS else self._follow_order(made)

    def _follow_order(self, made: Tensor) -> tuple[int, ...]:
        """The order of dimensions in the largest buffer that is read."""
        plain = tuple(range(made.rank))
        element = made.at([Index.variable(f"d{axis}", size) for axis, size in enumerate(made.shape)])
        loads = [each for each in walk(element) if isinstance(each, Load)]
        if not loads:
            return plain
        index = max(loads, key=lambda each: self._count(each.buffer)).index
        factors = {atom.name: factor for atom, factor in index.terms if isinstance(atom, Var)}
        steps = [factors.get(f"d{axis}", 0) for axis in plain]
        if len(factors) < len(index.terms) or not all(step for step, n in zip(steps, made.shape, strict=True) if n > 1):
            return plain
        return tuple(sorted(plain, key=lambda axis: -steps[axis] if made.shape[axis] > 1 else -math.inf))

    def _count(self, buffer: str) -> int:
        """How many elements a buffer has."""
        found = self.pending.get(buffer)
        return math.prod(self.buffers[buffer].shape) if found is None else found.tensor.count

    # what is pending

    def _begin(self, value: ir.Value, made: RowTensor | ConvTensor) -> Tensor:
        """A tensor over what a row or a convolution will give."""
        name, origin = f"{_name(value)}.sums", self.origins[value]
        self.begun[name] = (origin.layers, origin.ops)
        if not math.prod(made.shape):
            return make_constant(0, made.shape, made.dtype)
        if isinstance(made, RowTensor):
            if not made.rows.num_columns:
                raise refuse("it reduces nothing that has no elements")
            pending: Pending = begin_rows(name, made, self._choose_row_order(value, made))
            self.pending[name] = pending
            return replace(pending.tensor, buffer=None)
        pending = begin_conv(name, made, self._settle_image(name, made.image), self._settle_filters(name, made))
        self.pending[name] = pending
        return reshape_to(_add_bias(replace(pending.tensor, buffer=None), made.bias), made.shape)

    def _choose_row_order(self, value: ir.Value, made: RowTensor) -> tuple[int, ...]:
        """Windows over images that lie with their channels last give such images."""
        rank, ops = len(made.shape), self.origins[value].ops
        is_image = rank in CHANNELS_LAST and made.is_reduced and bool(ops) and ops[-1] in _WINDOWED
        return CHANNELS_LAST[rank] if is_image else tuple(range(rank))

    def _store_pending(self, node: ir.Node) -> None:
        """Store what a node reads that is not written yet, unless it may go on in the same kernel."""
        read = {value: made for value in node.inputs if value is not None and (made := self.values.get(value))}
        largest = max((math.prod(made.shape) for made in read.values()), default=0)
        for value, made in read.items():
            goes_on = node.op_type in FOLLOWERS and math.prod(made.shape) == largest
            if not goes_on and isinstance(made, Tensor) and list_pending(_element(made), self.pending):
                self._store(value, made)

    def _settle_image(self, name: str, image: Tensor) -> Image:
        found = find_image(image) or find_image(self.store_operand(f"{name}.image", image, CHANNELS_LAST[4]))
        if found is None:
            raise refuse("the image of a convolution lies nowhere")
        return found

    def _settle_filters(self, name: str, made: ConvTensor) -> str:
        """The buffer of the filters as kernels read them: packed with the plan where they are weights."""
        recipe = TAPS if made.is_depthwise else FILTERS
        source = made.weight.buffer
        if source is None or source not in self.weights:
            order = (2, 3, 1, 0) if made.is_depthwise else CHANNELS_LAST[4]
            return self.store_operand(f"{name}.filters", made.weight, order).buffer or ""
        packed = f"{source}.{recipe}"
        if packed not in self.weights:
            self.weights[packed] = pack(recipe, [self.weights[source]])
            self.packed[packed] = (recipe, (source,))
            self._make(packed, self.weights[packed].shape, made.dtype, "weight")
        return packed

    def store_operand(self, name: str, operand: Tensor, order: Sequence[int] = ()) -> Tensor:
        """Have a region write an operand to memory, row by row with its dimensions in an order."""
        stored = Stored(buffer=name, dtype=operand.dtype, value=_element(operand, order), place=_flat(operand))
        self.regions.append(ElementRegion(stored=(stored,), count=operand.count, ops=("Expand",)))
        return self._make(name, operand.shape, operand.dtype, "temporary", order)

    def _find_output(self, value: ir.Value) -> str:
        if _name(value) not in self.buffers or self.buffers[_name(value)].kind != "output":
            raise refuse(f"output '{value.name}' is nothing that is computed here")
        return _name(value)


def _flat(tensor: Tensor) -> Index:
    return Index.variable("i", tensor.count)


def _element(tensor: Tensor, order: Sequence[int] = ()) -> Expr:
    """The element that lies at a place in memory, with the dimensions in an order."""
    axes = tuple(order) or tuple(range(tensor.rank))
    places = dict(zip(axes, unflatten(_flat(tensor), [tensor.shape[axis] for axis in axes]), strict=True))
    return tensor.at([places[axis] for axis in range(tensor.rank)])


def _add_bias(sums: Tensor, bias: Tensor | None) -> Tensor:
    """Sums of a convolution with one number for each filter."""
    if bias is None:
        return sums
    given = broadcast_to(reshape_to(bias, (1, bias.count, 1, 1)), sums.shape)
    return map_elements(lambda a, b: apply("{0} + {1}", a, b, dtype=sums.dtype), sums, given, dtype=sums.dtype)


def _can_read(ops: set[str], made: Tensor) -> bool:
    """Whether operators read a tensor where it lies, although each of its elements many times."""
    if ops <= _PRODUCTS:
        return made.rank > 1 and find_matrix(made) is not None
    return ops == {"Conv"} and made.rank in CHANNELS_LAST and find_image(_as_image(made)) is not None


def _as_image(made: Tensor) -> Tensor:
    return made if made.rank == 4 else reshape_to(made, (*made.shape[:2], 1, made.shape[2]))


def _name(value: ir.Value) -> str:
    return value.name or ""


def _dtype(value: ir.Value) -> str:
    if value.dtype is None:
        raise refuse(f"the type of '{value.name}' is not known")
    return str(value.dtype.numpy().name)


def _static_shape(value: ir.Value) -> tuple[int, ...]:
    dims = None if value.shape is None else tuple(value.shape)
    if dims is None or not all(isinstance(dim, int) for dim in dims):
        raise refuse(f"the shape of '{value.name}' is not known when the plan is built")
    return tuple(int(dim) for dim in dims if isinstance(dim, int))


def _attribute(attribute: Any) -> Any:
    """The value of an attribute as kernels take it."""
    value = attribute.value
    if hasattr(value, "numpy"):
        return value.numpy()
    return value.decode() if isinstance(value, bytes) else value
