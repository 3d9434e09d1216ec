"""Types and symbolic shapes of a network.

Inference itself is onnx-shape-inference's; this module adds plugin nodes to it and converts what it says. A dimension
is either an expression over *known symbols* (input dims, values of small integer inputs, plugin sizes) or unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import onnx_ir as ir
import onnx_shape_inference as osi

from dovetail.errors import DovetailError, ModelError, PluginError
from dovetail.expr import Constant, Expr, SizeTensor, Symbol
from dovetail.network.importer.problems import describe_node
from dovetail.network.inference.context import BoundedContext
from dovetail.network.inference.dim_exprs import (
    Dim,
    describe_shape,
    dim_from_expr,
    expr_from_dim,
    settle_shape,
    symbols_in,
)
from dovetail.network.inference.fixes import CORRECTIONS, type_body_inputs
from dovetail.network.inference.schema import infer_by_schema
from dovetail.network.plugins import PLUGIN_DOMAIN, PLUGIN_OP, PluginEntry, entry_of
from dovetail.network.value_types import describe_type, forget_object_shapes, has_no_shape
from dovetail.types import DataType

__all__ = [
    "MAX_VALUE_SYMBOLS",
    "ShapeInference",
    "SizeSymbol",
    "data_type_from_ir",
    "find_io_type",
    "ir_type_from_data_type",
    "make_identifier",
    "size_symbols",
    "static_count",
    "value_symbol",
]

_SIZES_KEY: Final = "dovetail.sizes"
_IR_TYPES: Final = {dtype: ir.DataType(dtype.onnx_number) for dtype in DataType}
MAX_VALUE_SYMBOLS: Final = 64
"""An integer input with more elements than this is no shape."""


def ir_type_from_data_type(dtype: DataType) -> ir.DataType:
    """The ONNX element type of a contract type."""
    return _IR_TYPES[DataType(dtype)]


def data_type_from_ir(dtype: ir.DataType | None) -> DataType | None:
    """The contract type of an ONNX element type; None when the contract has no such type."""
    return next((ours for ours, theirs in _IR_TYPES.items() if theirs == dtype), None)


def find_io_type(value: ir.Value, where: str) -> DataType:
    """Return the contract type of an input or output; FLOAT for DOUBLE, as ONNX models are read by TensorRT.

    The parser of TensorRT casts DOUBLE down to FLOAT:
    https://github.com/onnx/onnx-tensorrt/blob/main/docs/operators.md.

    Args:
        value: The input or output.
        where: Its name for messages.

    Raises:
        ModelError: The contract has no type that the values could be given in.
    """
    known = DataType.FLOAT if value.dtype == ir.DataType.DOUBLE else data_type_from_ir(value.dtype)
    if known is None or not isinstance(value.type, ir.TensorType):
        raise ModelError(
            "its element type is none of the contract's",
            where=where,
            expected=", ".join(member.name for member in DataType) + ", or DOUBLE",
            got=value.type if value.dtype is None else value.dtype.name,
            fix="cast it in the model, or use dovetail.compile",
        )
    return known


@dataclass(frozen=True, kw_only=True)
class SizeSymbol:
    """A dimension that a plugin writes while it runs: which output holds it, and its bounds."""

    name: str
    output_index: int
    opt: Expr
    upper: Expr


def size_symbols(node: ir.Node) -> list[SizeSymbol]:
    """The size tensors a plugin node declared when its shapes were inferred."""
    return list(node.meta.get(_SIZES_KEY, ()))


@dataclass
class ShapeInference:
    """Types and shapes of one network, found node by node or for a whole model."""

    opsets: Mapping[str, int]
    _context: BoundedContext = field(init=False)

    def __post_init__(self) -> None:
        osi.registry.collect()
        _register_plugin_inference()
        self._context = BoundedContext(dict(self.opsets))

    def add_input(self, value: ir.Value) -> None:
        """Give every unknown dimension of an input a name, and its contents too when it may be a shape tensor."""
        if has_no_shape(value):
            return
        self._context.name_anonymous_dims(value)
        settle_shape(value)
        symbols = _value_symbols(value)
        if symbols:
            self._context.name_contents(value, symbols)

    def infer_node(self, node: ir.Node) -> None:
        """Set type and shape of a node's outputs; bodies of control flow first."""
        type_body_inputs(node)
        for value in node.inputs:
            if value is not None:
                self._context.name_anonymous_dims(value)  # a shape that only the file tells has no names
                settle_shape(value)
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                for inner in attribute.as_graph():
                    self.infer_node(inner)
        infer = osi.registry.get(node.domain, node.op_type, version=self._context.get_opset_version(node.domain))
        correct = CORRECTIONS.get((node.domain, node.op_type))
        try:
            is_done = correct is not None and correct(self._context, node)
            if infer is not None and not is_done:
                infer(self._context, node)
            if any(value.type is None for value in node.outputs):
                infer_by_schema(self._context, node)
        except DovetailError:
            raise
        except Exception as error:  # every op has its own ways to fail; the node is what the user needs
            raise _describe(node, error, self._context.get_opset_version(node.domain)) from error
        forget_object_shapes(node.outputs)

    def infer_graph(self, graph: ir.Graph) -> None:
        """Infer a whole graph: inputs, then nodes in order."""
        # New unknowns must not get the name of a dimension that an earlier inference named.
        self._context.reserve_symbol_names(_symbol_names(graph))
        for value in graph.inputs:
            self.add_input(value)
        for node in graph:
            self.infer_node(node)

    def exprs(self, value: ir.Value) -> tuple[Expr | None, ...] | None:
        """The shape as expressions, None for a dimension that cannot be expressed; None when even rank is unknown."""
        if value.shape is None:
            return None
        return tuple(expr_from_dim(dim) for dim in value.shape.dims)

    @property
    def assumed_dims(self) -> dict[str, tuple[Expr, int]]:
        """Open dims that have a size as long as no element of an input that it depends on is below a number."""
        sizes = {name: (expr_from_dim(size), least) for name, (size, least) in self._context.assumed.items()}
        return {name: (size, least) for name, (size, least) in sizes.items() if size is not None}

    def constant_values(self, value: ir.Value) -> tuple[Expr | None, ...] | None:
        """What is known of the contents of a small integer tensor."""
        return _contents(self._context, value)


def _symbol_names(graph: ir.Graph) -> set[str]:
    """The names of all symbols in the shapes of a graph, bodies included."""
    values = [*graph.inputs, *(value for node in graph.all_nodes() for value in node.outputs)]
    values += [value for inner in graph.subgraphs() for value in inner.inputs]
    dims = {dim for value in values for dim in value.shape or () if isinstance(dim, ir.SymbolicDim)}
    return {name for dim in dims for name in symbols_in(dim)}


def _describe(node: ir.Node, error: Exception, opset: int) -> ModelError:
    inputs = ", ".join(f"{v.name}{describe_shape(v.shape)}" if v is not None else "-" for v in node.inputs)
    layer = node.metadata_props.get("dovetail.layer")
    where = describe_node(node, opset) if layer is None else f"layer '{layer}' ({node.op_type})"
    # What arithmetic and lookups of our own say is about our code and not about the model.
    reason = "" if isinstance(error, ArithmeticError | LookupError | TypeError | AttributeError) else f": {error}"
    return ModelError(f"shapes do not fit{reason}", where=where, got=inputs)


def _value_symbols(value: ir.Value) -> list[str]:
    """Names for the contents of an integer input that is small enough to be a shape."""
    if value.dtype not in (ir.DataType.INT32, ir.DataType.INT64) or value.shape is None or len(value.shape) > 1:
        return []
    count = value.shape[0] if len(value.shape) else 1
    if not isinstance(count, int) or count > MAX_VALUE_SYMBOLS:
        return []
    return [value_symbol(value.name or "", index) for index in range(count)]


def value_symbol(tensor: str, index: int) -> str:
    """The symbol that stands for one element of a shape-tensor input."""
    return f"value_{make_identifier(tensor)}_{index}"


def make_identifier(name: str) -> str:
    """A name that the symbolic parser reads as one symbol, different for different names."""
    if name.isidentifier():
        return name
    return "x" + name.encode().hex()


def _register_plugin_inference() -> None:
    if not osi.registry.has(PLUGIN_DOMAIN, PLUGIN_OP):
        osi.registry.register(PLUGIN_DOMAIN, PLUGIN_OP, since_version=1)(_infer_plugin)


def _infer_plugin(context: osi.ShapeInferenceContext, node: ir.Node) -> None:
    entry = entry_of(node)
    if entry is None:
        raise ModelError("a plugin node without its plugin", where=f"node '{node.name}'")
    types = entry.handle.get_output_data_types(_input_types(node, entry), _input_ranks(node, entry))
    shapes = _plugin_shapes(context, node, entry)
    known = _known_dims(node)
    sizes: list[SizeSymbol] = []
    for index, (value, dtype) in enumerate(zip(node.outputs, types, strict=True)):
        context.set_dtype(value, ir_type_from_data_type(dtype))
        if shapes is not None:
            dims = [_plugin_dim(context, node, entry, expr, known, sizes) for expr in shapes[index]]
            context.set_shape(value, ir.Shape(dims))
    for size in sizes:
        rank = len(shapes[size.output_index]) if shapes is not None else 0
        _check_size_tensor(entry, size.output_index, types[size.output_index], rank)
    node.meta[_SIZES_KEY] = sizes


def _check_size_tensor(entry: PluginEntry, index: int, dtype: DataType, rank: int) -> None:
    if rank or dtype not in (DataType.INT32, DataType.INT64):
        raise PluginError(
            f"output {index} is declared as a size tensor",
            where=entry.handle.where,
            expected="a 0-D output of type INT32 or INT64",
            got=f"{rank}-D {dtype.name}",
            fix=f"return DimsExprs(0) for output {index} in get_output_shapes, and an integer type for it",
        )


def _input_ranks(node: ir.Node, entry: PluginEntry) -> list[int | None]:
    values = node.inputs[: entry.num_inputs]
    return [None if value is None or value.shape is None else len(value.shape) for value in values]


def _input_types(node: ir.Node, entry: PluginEntry) -> list[DataType]:
    types = []
    for index, value in enumerate(node.inputs[: entry.num_inputs]):
        dtype = None if value is None or has_no_shape(value) else data_type_from_ir(value.dtype)
        if dtype is None:
            raise PluginError(
                f"input {index} has no type the contract knows",
                where=entry.handle.where,
                got="nothing" if value is None or value.type is None else describe_type(value.type),
                fix="add a Cast before the plugin, or take the tensors out of the sequence",
            )
        types.append(dtype)
    return types


def _plugin_shapes(context: osi.ShapeInferenceContext, node: ir.Node, entry: PluginEntry) -> list[list[Expr]] | None:
    inputs: list[tuple[Expr, ...]] = []
    for value in node.inputs[: entry.num_inputs]:
        if value is None or value.shape is None:
            return None  # rank unknown: the output is found when the step runs
        context.name_anonymous_dims(value)
        inputs.append(tuple(_expr_or_symbol(dim) for dim in value.shape.dims))
    contents = [_shape_input(context, value, entry) for value in node.inputs[entry.num_inputs :]]
    return entry.handle.get_output_shapes(inputs, contents)


def _expr_or_symbol(dim: Dim) -> Expr:
    expr = expr_from_dim(dim)
    return Symbol(str(dim)) if expr is None else expr


def _known_dims(node: ir.Node) -> dict[Expr, Dim]:
    """The dims of a node's inputs, which those of its outputs are made of, by what the plugin is told of them."""
    dims = [dim for value in node.inputs if value is not None for dim in value.shape or ()]
    return {_expr_or_symbol(dim): dim for dim in dims if isinstance(dim, int) or dim.value is not None}


def _shape_input(context: osi.ShapeInferenceContext, value: ir.Value | None, entry: PluginEntry) -> tuple[Expr, ...]:
    contents = None if value is None else _contents(context, value)
    if contents is not None and all(expr is not None for expr in contents):
        return tuple(expr for expr in contents if expr is not None)
    count = static_count(value)
    if value is None or count is None:
        raise PluginError(
            "a shape input must be an integer tensor whose own shape is known when building",
            where=entry.handle.where,
            got="nothing" if value is None else f"'{value.name}' {value.dtype} {describe_shape(value.shape)}",
        )
    return tuple(Symbol(value_symbol(value.name or "", index)) for index in range(count))


def static_count(value: ir.Value | None) -> int | None:
    """How many elements an integer tensor has, when that is known."""
    if value is None or value.shape is None or value.dtype not in (ir.DataType.INT32, ir.DataType.INT64):
        return None
    count = 1
    for dim in value.shape.dims:
        if not isinstance(dim, int):
            return None
        count *= dim
    return count


def _contents(context: osi.ShapeInferenceContext, value: ir.Value) -> tuple[Expr | None, ...] | None:
    constant = ir.convenience.get_const_tensor(value)
    if constant is not None and constant.dtype in (ir.DataType.INT32, ir.DataType.INT64) and constant.size <= 4096:
        return tuple(Constant(int(number)) for number in constant.numpy().reshape(-1))
    known = context.get_symbolic_value(value)
    if known is not None:
        return tuple(expr_from_dim(dim) for dim in known)
    count = static_count(value) if value.is_graph_input() else None
    if count is None or count > MAX_VALUE_SYMBOLS:
        return None
    return tuple(Symbol(value_symbol(value.name or "", index)) for index in range(count))


def _plugin_dim(
    context: osi.ShapeInferenceContext,
    node: ir.Node,
    entry: PluginEntry,
    expr: Expr,
    known: Mapping[Expr, Dim],
    sizes: list[SizeSymbol],
) -> Dim:
    if isinstance(expr, SizeTensor):
        return ir.SymbolicDim(_size_symbol(node, entry, expr, sizes).name)
    dim = dim_from_expr(expr, known)
    return context.new_symbolic_dim() if dim is None else dim


def _size_symbol(node: ir.Node, entry: PluginEntry, expr: SizeTensor, sizes: list[SizeSymbol]) -> SizeSymbol:
    known = next((size for size in sizes if size.output_index == expr.output_index), None)
    if known is not None:
        return known
    if not 0 <= expr.output_index < len(node.outputs):
        raise PluginError(
            f"declare_size_tensor names output {expr.output_index}",
            where=entry.handle.where,
            expected=f"an output index below {len(node.outputs)}",
        )
    name = f"size_{node.attributes['plugin'].as_int()}_{expr.output_index}"
    size = SizeSymbol(name=name, output_index=expr.output_index, opt=expr.opt, upper=expr.upper)
    sizes.append(size)
    return size
