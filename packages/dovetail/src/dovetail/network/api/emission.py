"""Writing layers as ONNX nodes: values by tensor, names, constants, and the small helpers that layers compose with.

Every node is typed and shaped as soon as it is written, so a layer can ask for rank, dims and type of what came before.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from dovetail.errors import InternalError, ModelError
from dovetail.expr import Constant
from dovetail.network.api.layers.base import ILayer, layer_where
from dovetail.network.api.layers.onnx_node import IOnnxNodeLayer
from dovetail.network.api.tensor import ITensor
from dovetail.network.inference.dim_exprs import describe_shape, expr_from_dim
from dovetail.network.inference.shapes import ShapeInference, data_type_from_ir, find_io_type, ir_type_from_data_type
from dovetail.network.opsets.versions import has_same_meaning
from dovetail.network.plugins import PLUGIN_DOMAIN
from dovetail.types import DataType

if TYPE_CHECKING:
    from dovetail.network.api.core import NetworkCore

__all__ = ["DOVETAIL_DOMAIN", "INT64_MAX", "INT64_MIN", "OPSETS", "Emitter"]

DOVETAIL_DOMAIN: Final = "dovetail"
"""The domain of the few operators that ONNX has no counterpart for."""
OPSETS: Final = {"": 25, DOVETAIL_DOMAIN: 1, PLUGIN_DOMAIN: 1}
INT64_MAX: Final = 2**63 - 1
INT64_MIN: Final = -(2**63)


class Emitter:
    """Writes layers into a list of nodes.

    ``values`` maps the tensors written so far to their values; ``block`` is where nodes go. Bodies of control flow swap
    both while they are written.
    """

    def __init__(self, network: NetworkCore, *, reserved: frozenset[str] = frozenset()) -> None:
        self.network = network
        self.opsets = network._opsets()
        self.inference = ShapeInference(self.opsets)
        self.values: MutableMapping[ITensor, ir.Value] = {}
        self.block: list[ir.Node] = []
        self.initializers: list[ir.Value] = []
        self._layer: ILayer | None = None
        self._reserved = reserved
        self._value_names: set[str] = set()
        self._node_names: set[str] = set()
        self._taken: set[ir.Value] = set()

    # layers and tensors

    def add_input(self, tensor: ITensor) -> ir.Value:
        """The value of a network input."""
        dims = [tensor._dimension_names.get(axis) if size < 0 else size for axis, size in enumerate(tensor.shape)]
        value = ir.Value(
            name=self._claim(tensor),
            shape=ir.Shape(dims),
            type=ir.TensorType(ir_type_from_data_type(tensor.dtype)),
        )
        self.inference.add_input(value)
        self._describe_tensor(tensor, value)
        self.bind(tensor, value)
        if tensor._dtype is not None and tensor._dtype != tensor.dtype:
            self.alias(tensor, self._cast_io(tensor, value, tensor._dtype))
        return value

    def write_output(self, tensor: ITensor) -> ir.Value:
        """Return the value that callers get of an output, in the type that was set for it."""
        value, dtype = self[tensor], tensor._io_dtype
        if dtype is None and self.network.has_contract_io:
            dtype = find_io_type(value, f"output '{tensor.name}'")
        if dtype is None or value.dtype == ir_type_from_data_type(dtype):
            return value
        result = self._cast_io(tensor, value, dtype)
        value.name, result.name = result.name, value.name
        self._describe_tensor(tensor, result)
        return result

    def _cast_io(self, tensor: ITensor, value: ir.Value, dtype: DataType) -> ir.Value:
        result = self.op("Cast", value, to=ir_type_from_data_type(dtype).value)
        self.block[-1].name = self._unique_node(f"{tensor.name}/Cast")
        result.name = self.unique(f"{tensor.name}_cast")
        return result

    def emit_layer(self, layer: ILayer) -> None:
        """Write one layer; its inputs must have been written."""
        first, first_constant = len(self.block), len(self.initializers)
        outer, self._layer = self._layer, layer
        try:
            outputs = list(layer._emit(self))
            self.name_nodes(layer, self.block[first:])
            if len(outputs) != layer.num_outputs:
                raise InternalError(f"{layer._where} wrote {len(outputs)} outputs of {layer.num_outputs}")
            for tensor, value in zip(layer._outputs, outputs, strict=True):
                self.bind(tensor, value)
        except BaseException:
            del self.block[first:], self.initializers[first_constant:]
            raise
        finally:
            self._layer = outer

    def bind(self, tensor: ITensor, value: ir.Value) -> None:
        """Let a value stand for a tensor; one that stands for another already is passed through an Identity."""
        if value in self._taken:
            value = self.op("Identity", value)
            self.block[-1].name = self._unique_node(f"{tensor.name}/Identity")
        self._taken.add(value)
        if value.producer() is not None:
            value.name = self._claim(tensor)
            self._describe_tensor(tensor, value)
        self.values[tensor] = value

    def alias(self, tensor: ITensor, value: ir.Value) -> None:
        """Let a tensor be another name of a value."""
        self.values[tensor] = value

    def __getitem__(self, tensor: ITensor) -> ir.Value:
        try:
            return self.values[tensor]
        except KeyError:
            raise InternalError(f"tensor '{tensor.name}' was used before it was written") from None

    def input(self, index: int) -> ir.Value:
        """The value of a required input of the layer being written."""
        value = self.optional_input(index)
        if value is None:
            layer = self.layer
            name = layer._input_names[index] if index < len(layer._input_names) else str(index)
            raise self.error(f"input {index} ({name}) is not set", fix=f"call set_input({index}, tensor)")
        return value

    def optional_input(self, index: int) -> ir.Value | None:
        """The value of an optional input, or None."""
        tensor = self.layer.get_input(index)
        return None if tensor is None else self[tensor]

    @property
    def layer(self) -> ILayer:
        """The layer being written."""
        if self._layer is None:
            raise InternalError("no layer is being written")
        return self._layer

    @contextmanager
    def writing(self, layer: ILayer) -> Iterator[None]:
        """Let what is written belong to a layer, and name the nodes after it that got no name by the end."""
        outer, self._layer = self._layer, layer
        first = len(self.block)
        try:
            yield
            self.name_nodes(layer, [node for node in self.block[first:] if node.name is None])
        finally:
            self._layer = outer

    def placeholder(self, tensor: ITensor, dtype: ir.DataType, dims: Sequence[int | ir.SymbolicDim | None]) -> ir.Value:
        """A value of this type and shape whose contents nobody knows; None stands for an unknown dimension."""
        value = ir.Value(name=self._claim(tensor), shape=ir.Shape(dims), type=ir.TensorType(dtype))
        if any(dim is None for dim in dims):
            self.inference.add_input(value)
        return value

    def push_block(self) -> tuple[list[ir.Node], MutableMapping[ITensor, ir.Value]]:
        """Start the body of a control-flow node; give the result to ``pop_block``."""
        saved = (self.block, self.values)
        self.block, self.values = [], ChainMap({}, self.values)
        return saved

    def pop_block(self, saved: tuple[list[ir.Node], MutableMapping[ITensor, ir.Value]]) -> list[ir.Node]:
        """End the body and return its nodes."""
        nodes = self.block
        self.block, self.values = saved
        return nodes

    # names

    def unique(self, name: str) -> str:
        """A name for a value that stands for no tensor: the given one, with a number when it is taken."""
        candidate, count = name, 1
        while candidate in self._value_names or candidate in self._reserved:
            candidate = f"{name}_{count}"
            count += 1
        self._value_names.add(candidate)
        return candidate

    def _claim(self, tensor: ITensor) -> str:
        """The tensor's own name; a part that is written twice gets a numbered one the second time."""
        if tensor.name in self._value_names:
            return self.unique(tensor.name)
        self._value_names.add(tensor.name)
        return tensor.name

    def _unique_node(self, name: str) -> str:
        candidate, count = name, 1
        while candidate in self._node_names:
            candidate = f"{name}_{count}"
            count += 1
        self._node_names.add(candidate)
        return candidate

    def name_nodes(self, layer: ILayer, nodes: Sequence[ir.Node], *, in_body: bool = False) -> None:
        """Name the nodes of a layer after it, and the values that stand for no tensor after the nodes."""
        for node in nodes:
            is_main = node.op_type == layer._kind or (len(nodes) == 1 and not in_body)
            node.name = self._unique_node(layer.name if is_main else f"{layer.name}/{node.op_type}")
            for value in node.outputs:
                if value.name is None:
                    value.name = self.unique(f"{node.name}:{value.index()}")

    def _describe_tensor(self, tensor: ITensor, value: ir.Value) -> None:
        """Keep what the user said of a tensor, for the builder."""
        if tensor._allowed_formats is not None:
            value.metadata_props["dovetail.formats"] = str(tensor._allowed_formats)
        if tensor.dynamic_range is not None:
            value.metadata_props["dovetail.range"] = "{!r} {!r}".format(*tensor.dynamic_range)
        if tensor._layer is not None and tensor._layer.output_type_is_set(tensor._index):
            value.metadata_props["dovetail.output_type"] = tensor._layer._output_types[tensor._index].name

    # nodes and constants

    def ops(
        self, op_type: str, *inputs: ir.Value | None, count: int, domain: str = "", **attributes: Any
    ) -> list[ir.Value]:
        """Write a node with ``count`` outputs; an attribute that is None is left out."""
        used = list(inputs)
        while used and used[-1] is None:
            used.pop()
        given = [_attribute(name, value) for name, value in attributes.items() if value is not None]
        return self.add_node(ir.Node(domain, op_type, used, given, num_outputs=count))

    def op(self, op_type: str, *inputs: ir.Value | None, domain: str = "", **attributes: Any) -> ir.Value:
        """Write a node with one output."""
        return self.ops(op_type, *inputs, count=1, domain=domain, **attributes)[0]

    def add_node(self, node: ir.Node) -> list[ir.Value]:
        """Take a node into the block: mark whose it is, and find types and shapes."""
        if self._layer is not None:
            self._mark(node, self._layer)
        if self.opsets[""] != OPSETS[""]:
            self._check_opset(node)
        self.inference.infer_node(node)
        for value in node.outputs:
            _settle_dims(value)
        self.block.append(node)
        return list(node.outputs)

    def _check_opset(self, node: ir.Node) -> None:
        """Refuse a node of this API's opset that means something else at the opset of an imported model."""
        if node.domain or isinstance(self._layer, IOnnxNodeLayer):
            return
        opset = self.opsets[""]
        if not has_same_meaning(node, OPSETS[""], opset):
            raise self.error(
                f"the layer needs opset {OPSETS['']}, and the imported model is of opset {opset} with nodes that mean "
                "something else at the other",
                fix=f"export the model at opset {OPSETS['']}",
            )

    def _mark(self, node: ir.Node, layer: ILayer) -> None:
        node.metadata_props["dovetail.layer"] = layer.name
        if layer.metadata:
            node.metadata_props["dovetail.metadata"] = layer.metadata
        if layer.precision is not None:
            node.metadata_props["dovetail.precision"] = layer.precision.name

    def constant(self, array: npt.ArrayLike, role: str) -> ir.Value:
        """A constant of the layer being written; the array is not copied."""
        return self._initializer(np.asarray(array), self.unique(f"{self.layer.name}.{role}"))

    def weights(self, role: str, array: npt.NDArray[Any]) -> ir.Value:
        """Weights of the layer being written, under the name the user gave them or ``<layer>.<role>``."""
        given = self.network._weights_name(self.layer, role)
        value = self._initializer(array, self.unique(given))
        value.metadata_props["dovetail.weights"] = role
        if self.network.are_weights_marked_refittable(given):
            value.metadata_props["dovetail.refittable"] = "1"
        return value

    def _initializer(self, array: npt.NDArray[Any], name: str) -> ir.Value:
        tensor = ir.Tensor(array, name=name)
        value = ir.Value(name=name, shape=ir.Shape(array.shape), type=ir.TensorType(tensor.dtype), const_value=tensor)
        self.initializers.append(value)
        return value

    def stored(self, constant: ir.Value) -> ir.Value:
        """A constant of an imported model, of any type; its contents are shared."""
        value = ir.Value(
            name=self.unique(constant.name or "constant"),
            shape=constant.shape,
            type=constant.type,
            const_value=constant.const_value,
        )
        self.initializers.append(value)
        return value

    def ints(self, numbers: Sequence[int], role: str) -> ir.Value:
        """A 1-D INT64 constant."""
        return self.constant(np.asarray(list(numbers), np.int64), role)

    def scalar(self, number: float, role: str, dtype: ir.DataType = ir.DataType.INT64) -> ir.Value:
        """A 0-D constant."""
        return self.constant(np.asarray(number).astype(dtype.numpy()), role)

    # what is known of a value

    def rank(self, value: ir.Value) -> int:
        """The number of dimensions; an error when it is not known."""
        if value.shape is None:
            raise self.error(
                "the rank of an input is not known when building",
                got=f"tensor '{value.name}'",
                fix="make the layers before it of fixed rank",
            )
        return len(value.shape)

    def dims(self, value: ir.Value) -> tuple[int | None, ...]:
        """The dimensions, None for each that is not a constant."""
        self.rank(value)
        return tuple(dim if isinstance(dim, int) else None for dim in value.shape or ())

    def dtype(self, value: ir.Value) -> ir.DataType:
        """The element type."""
        if value.dtype is None:
            raise self.error("the type of an input is not known", got=f"tensor '{value.name}'")
        return value.dtype

    def data_type(self, value: ir.Value) -> DataType:
        """The element type as the contract names it."""
        known = data_type_from_ir(self.dtype(value))
        if known is None:
            raise self.error("a type that the contract does not have", got=value.dtype, fix="add a cast before it")
        return known

    def constant_ints(self, value: ir.Value) -> list[int] | None:
        """The contents of an integer tensor when they are all known now."""
        known = self.inference.constant_values(value)
        if known is None or not all(isinstance(expr, Constant) for expr in known):
            return None
        return [expr.value for expr in known if isinstance(expr, Constant)]

    # checks

    def error(self, what: str, *, expected: object = None, got: object = None, fix: str | None = None) -> ModelError:
        """An error of the layer being written."""
        layer = self.layer
        return ModelError(what, where=layer_where(layer.name, layer._kind), expected=expected, got=got, fix=fix)

    def axis(self, axis: int, rank: int, name: str = "axis") -> int:
        """A checked axis; negative ones count from the end."""
        if not -rank <= axis < rank:
            raise self.error(
                f"'{name}' is out of range", expected=f"{-rank} to {rank - 1} for a tensor of rank {rank}", got=axis
            )
        return axis % rank

    def axes(self, mask: int, rank: int) -> list[int]:
        """The axes of a bit mask, checked."""
        if mask >> rank:
            raise self.error(
                "'axes' has a bit beyond the last axis",
                expected=f"bits 0 to {rank - 1} for a tensor of rank {rank}",
                got=bin(mask),
                fix="use 1 << axis",
            )
        return [axis for axis in range(rank) if mask >> axis & 1]

    def one_axis(self, mask: int, rank: int) -> int:
        """The axis of a bit mask that must have one bit."""
        axes = self.axes(mask, rank)
        if len(axes) != 1:
            raise self.error("'axes' must name exactly one axis", expected="one bit, 1 << axis", got=bin(mask))
        return axes[0]

    def require_rank(self, value: ir.Value, expected: int, name: str) -> None:
        """Refuse a tensor of another rank."""
        if self.rank(value) != expected:
            raise self.error(
                f"'{name}' has the wrong number of dimensions",
                expected=expected,
                got=f"{self.rank(value)} {self.describe(value)}",
                fix="reshape it with add_shuffle",
            )

    def require_length(self, numbers: Sequence[Any], expected: int, name: str) -> None:
        """Refuse a list of another length."""
        if len(numbers) != expected:
            raise self.error(f"'{name}' has the wrong length", expected=expected, got=f"{len(numbers)}: {numbers}")

    def require_same_type(self, *values: ir.Value) -> None:
        """Refuse tensors of different types."""
        types = [self.dtype(value) for value in values]
        if len(set(types)) > 1:
            raise self.error(
                "the inputs have different types",
                expected="one type",
                got=", ".join(f"'{v.name}' {t.name}" for v, t in zip(values, types, strict=True)),
                fix="add_cast one of them",
            )

    def require_type(self, value: ir.Value, allowed: Sequence[ir.DataType], name: str) -> None:
        """Refuse a tensor of a type the layer has no meaning for."""
        if self.dtype(value) not in allowed:
            raise self.error(
                f"'{name}' has the wrong type",
                expected=" or ".join(dtype.name for dtype in allowed),
                got=self.dtype(value).name,
                fix="add_cast it",
            )

    def describe(self, value: ir.Value) -> str:
        """A value for messages."""
        return f"'{value.name}' {describe_shape(value.shape)}"

    # small compositions

    def cast(self, value: ir.Value, dtype: ir.DataType) -> ir.Value:
        """The value in another type; itself when it has it."""
        return value if value.dtype == dtype else self.op("Cast", value, to=dtype.value)

    def int64(self, value: ir.Value) -> ir.Value:
        """An integer value as INT64, which is what ONNX takes for shapes."""
        if value.dtype not in (ir.DataType.INT32, ir.DataType.INT64):
            raise self.error(
                "an input that decides a shape is not an integer tensor",
                expected="INT32 or INT64",
                got=f"{value.dtype} '{value.name}'",
                fix="add_cast it",
            )
        return self.cast(value, ir.DataType.INT64)

    def shape_of(self, value: ir.Value, start: int = 0, end: int | None = None) -> ir.Value:
        """The dimensions ``start`` to ``end`` as a 1-D INT64 value."""
        return self.op("Shape", value, start=start or None, end=end)

    def dim(self, value: ir.Value, axis: int) -> ir.Value:
        """One dimension as a 1-D INT64 value of length one."""
        size = self.dims(value)[axis]
        if size is not None:
            return self.ints([size], "size")
        return self.shape_of(value, axis, axis + 1)

    def reshape(self, value: ir.Value, shape: ir.Value | Sequence[int], role: str = "shape") -> ir.Value:
        """Reshape; 0 copies a dimension and -1 is found."""
        return self.op("Reshape", value, shape if isinstance(shape, ir.Value) else self.ints(shape, role))

    def transpose(self, value: ir.Value, order: Sequence[int]) -> ir.Value:
        """Transpose; the value itself when the order is the identity."""
        if list(order) == list(range(len(order))):
            return value
        return self.op("Transpose", value, perm=list(order))

    def to_scalar(self, value: ir.Value, name: str) -> ir.Value:
        """A one-element tensor as 0-D."""
        if self.rank(value) == 0:
            return value
        if any(size not in (1, None) for size in self.dims(value)):
            raise self.error(f"'{name}' must have one element", expected="shape ()", got=self.describe(value))
        return self.op("Reshape", value, self.constant(np.empty(0, np.int64), "scalar"))

    def to_vector(self, value: ir.Value) -> ir.Value:
        """A 0-D tensor as 1-D of length one; a 1-D tensor as it is."""
        return value if self.rank(value) == 1 else self.reshape(value, [-1])


def _attribute(name: str, value: Any) -> ir.Attr:
    """An attribute by the kind of its value; onnx-ir's own conversion takes several times as long as the node."""
    if isinstance(value, int):
        return ir.AttrInt64(name, value)
    if isinstance(value, float):
        return ir.AttrFloat32(name, value)
    if isinstance(value, str):
        return ir.AttrString(name, value)
    if isinstance(value, ir.Graph):
        return ir.AttrGraph(name, value)
    if isinstance(value, list) and all(isinstance(item, int) for item in value):
        return ir.AttrInt64s(name, value)
    raise InternalError(f"attribute '{name}' has a value of type {type(value).__name__}")


def _settle_dims(value: ir.Value) -> None:
    """Turn expressions that come out as a plain number into that number."""
    dims = list(value.shape or ())
    known = [
        expr_from_dim(dim) if isinstance(dim, ir.SymbolicDim) and not (dim.value or "_").isidentifier() else None
        for dim in dims
    ]
    if any(isinstance(expr, Constant) for expr in known):
        value.shape = ir.Shape(
            [expr.value if isinstance(expr, Constant) else dim for dim, expr in zip(dims, known, strict=True)]
        )
