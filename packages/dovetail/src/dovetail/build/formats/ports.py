"""Plugin layers as the tuner sees them: shapes in the profile, and the types and formats to propose."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from dovetail.build.assign.layers import layer_name
from dovetail.build.lower.program_context import ProgramContext
from dovetail.build.tune.combinations import propose_layouts
from dovetail.build.tune.trial import PluginLayer
from dovetail.errors import PluginError
from dovetail.expr import Expr, Symbol, symbols_of
from dovetail.network.inference.shapes import ShapeInference, data_type_from_ir, size_symbols
from dovetail.network.plugins import PluginEntry
from dovetail.plugin.handle import PluginHandle
from dovetail.tensors import ShapeRange, TensorSpec
from dovetail.types import DataType

__all__ = ["TypeRule", "find_aliases", "infer_plugin_dims", "make_plugin_layer"]


@dataclass(frozen=True, kw_only=True)
class TypeRule:
    """Which types are proposed: the network's own, or with weak typing every type that a flag allows."""

    strongly_typed: bool = True
    extra: tuple[DataType, ...] = ()
    linear_only: bool = False
    """Whether no format but row by row is proposed."""

    def types(self, dtype: DataType, scale: float) -> list[TensorSpec]:
        """The types to propose for a tensor, in order."""
        own = TensorSpec(dtype=dtype.numpy.name, scale=scale if dtype is DataType.INT8 else -1.0)
        if self.strongly_typed or dtype is not DataType.FLOAT:
            return [own]
        proposals = [own]
        for extra in self.extra:
            if extra is not DataType.INT8:
                proposals.append(TensorSpec(dtype=extra.numpy.name))
            elif scale > 0:
                proposals.append(TensorSpec(dtype=extra.numpy.name, scale=scale))
        return proposals


def infer_plugin_dims(
    node: ir.Node, entry: PluginEntry, handle: PluginHandle, inference: ShapeInference, context: ProgramContext
) -> list[list[Expr]]:
    """The exact output shapes over the network's symbols."""
    inputs = [_named(value, context, position) for position, value in enumerate(node.inputs[: entry.num_inputs])]
    contents = []
    for position, value in enumerate(node.inputs[entry.num_inputs :]):
        known = None if value is None else inference.constant_values(value)
        count = 0 if value is None or value.shape is None else _static_size(value)
        names = known or [None] * count
        contents.append([_or_unknown(expr, f"content_{position}_{i}") for i, expr in enumerate(names)])
    return handle.get_output_shapes(inputs, contents)


def _static_size(value: ir.Value) -> int:
    size = 1
    for dim in value.shape.dims if value.shape is not None else ():
        size *= dim if isinstance(dim, int) else 0
    return size


def _named(value: ir.Value | None, context: ProgramContext, position: int) -> list[Expr]:
    dims = None if value is None else context.dims(value)
    if value is None or dims is None:
        name = "nothing" if value is None else f"'{value.name}'"
        raise PluginError(f"input {position} ({name}) has no known rank", fix="give the tensor a shape in the model")
    return [_or_unknown(dim, f"{value.name}_{axis}") for axis, dim in enumerate(dims)]


def _or_unknown(expr: Expr | None, name: str) -> Expr:
    """Dims that nobody knows get a symbol that is never static, so what depends on it is found in the run."""
    return Symbol(f"unknown {name}") if expr is None else expr


def find_aliases(node: ir.Node, handle: PluginHandle, num_inputs: int, *, is_enabled: bool) -> tuple[int, ...]:
    """Return for each output of a plugin layer the input whose memory it shares, or -1.

    Aliases are queried with and without the preview feature: an aliased plugin updates its input and does not write
    its output, so without shared memory the output would stay uninitialised.

    Args:
        node: The node of the layer.
        handle: The plugin.
        num_inputs: How many tensor inputs the plugin has; shape inputs cannot be aliased.
        is_enabled: Whether ``PreviewFeature.ALIASED_PLUGIN_IO_10_03`` is on.

    Raises:
        PluginError: An alias names no input or an input that is aliased already, or the feature is off.
    """
    aliases = tuple(handle.get_aliased_input(index) for index in range(len(node.outputs)))
    where = f"layer '{layer_name(node)}', {handle.where}"
    used = [source for source in aliases if source >= 0]
    if any(not -1 <= source < num_inputs for source in aliases) or len(set(used)) != len(used):
        raise PluginError(
            "get_aliased_input must return -1 or the index of an input, and each input at most once",
            where=where,
            expected=f"-1 to {num_inputs - 1}",
            got=aliases,
        )
    if used and not is_enabled:
        output = next(index for index, source in enumerate(aliases) if source >= 0)
        raise PluginError(
            f"get_aliased_input: output {output} shares memory with input {aliases[output]}, and the preview feature "
            "ALIASED_PLUGIN_IO_10_03 is off",
            where=where,
            expected="-1 for every output while the feature is off",
            got=aliases,
            fix="call config.set_preview_feature(PreviewFeature.ALIASED_PLUGIN_IO_10_03, True), or build with "
            "--alias-io; or return -1 and write the output",
        )
    return aliases


def make_plugin_layer(
    node: ir.Node,
    entry: PluginEntry,
    handle: PluginHandle,
    context: ProgramContext,
    rule: TypeRule,
    *,
    inference: ShapeInference,
    aliases: tuple[int, ...],
    in_body: bool,
) -> PluginLayer:
    """Everything the tuner needs to know of a plugin layer."""
    values = [value for value in (*node.inputs[: entry.num_inputs], *node.outputs) if value is not None]
    is_linear_only = in_body or not all(context.is_static(context.dims(value)) for value in values)
    sizes = {size.name: size.upper for size in size_symbols(node)}
    tensors = tuple(_describe(value, context) for value in values)
    proposals = tuple(
        propose_layouts(
            rule.types(tensor.data_type, context.scales.get(value, -1.0)),
            tensor.rank or 0,
            linear_only=rule.linear_only or is_linear_only,
        )
        for value, tensor in zip(values, tensors, strict=True)
    )
    outputs = [context.dims(value) or [] for value in node.outputs]
    size_outputs = {size.name: size.output_index for size in size_symbols(node)}
    _check_aliases(handle, tensors, entry.num_inputs, aliases)
    return PluginLayer(
        name=layer_name(node),
        handle=handle,
        provider=context.assigner.plugin_provider(node),
        tensors=tensors,
        proposals=proposals,
        rooms=tuple(_find_room(value, context, sizes) for value in values),
        num_inputs=entry.num_inputs,
        data_dependent=tuple(_size_axes(dims, size_outputs) for dims in outputs),
        size_bounds={size_outputs[name]: context.ranges.at([upper])[1][0] for name, upper in sizes.items()},
        contents=tuple(_find_contents(value, context, inference) for value in values[: entry.num_inputs]),
        aliases=aliases,
        is_linear_only=is_linear_only,
    )


def _check_aliases(
    handle: PluginHandle, tensors: Sequence[TensorSpec], num_inputs: int, aliases: Sequence[int]
) -> None:
    """Check that an output with shared memory has the type and the number of elements of its input.

    A larger output would be written past the end of that memory. Shapes between the bounds of the profile are checked
    when a context is bound to them.
    """
    for index, source in enumerate(aliases):
        if source < 0:
            continue
        given, wanted = tensors[source], tensors[num_inputs + index]
        if given.dtype != wanted.dtype:
            raise PluginError(
                f"output {index} shares memory with input {source} and has another type",
                where=handle.where,
                expected=given.data_type.name,
                got=wanted.data_type.name,
                fix="return -1 from get_aliased_input, or declare the input's type in get_output_data_types",
            )
        different = _find_different_sizes(given.shapes, wanted.shapes)
        if different is not None:
            raise PluginError(
                f"output {index} shares memory with input {source} and has another size",
                where=handle.where,
                expected=different[0],
                got=different[1],
                fix="return -1 from get_aliased_input, or declare the input's shape in get_output_shapes",
            )


def _find_different_sizes(
    given: ShapeRange | None, wanted: ShapeRange | None
) -> tuple[tuple[int | None, ...], tuple[int | None, ...]] | None:
    """The first of the minimum, optimum and maximum shapes with different numbers of elements, or None."""
    if given is None or wanted is None:
        return None
    for first, second in ((given.opt, wanted.opt), (given.min, wanted.min), (given.max, wanted.max)):
        sizes = [math.prod(size for size in shape if size is not None) for shape in (first, second)]
        if None not in (*first, *second) and sizes[0] != sizes[1]:
            return first, second
    return None


def _size_axes(dims: Sequence[Expr | None], size_outputs: Mapping[str, int]) -> dict[int, int]:
    """Data-dependent axes of an output, each with the index of its size tensor among the outputs."""
    names = {axis: dim.name for axis, dim in enumerate(dims) if isinstance(dim, Symbol)}
    return {axis: size_outputs[name] for axis, name in names.items() if name in size_outputs}


def _find_contents(value: ir.Value, context: ProgramContext, inference: ShapeInference) -> npt.NDArray[Any] | None:
    """Contents of an input at the optimum of the profile, where they are constant or follow from shapes."""
    if value.const_value is not None:
        return value.const_value.numpy()
    elements, dtype = inference.constant_values(value), data_type_from_ir(value.dtype)
    if elements is None or dtype is None:
        return None
    if not all(element is not None and _is_known(element, context) for element in elements):
        return None
    shape, numbers = context.ranges.at(context.dims(value) or [])[1], context.ranges.at(elements)[1]
    return np.array(numbers, dtype.numpy).reshape(shape) if math.prod(shape) == len(numbers) else None


def _is_known(element: Expr, context: ProgramContext) -> bool:
    """True if an element follows from shapes, or from values that the profile gives."""
    for name in symbols_of(element):
        low_opt_high, source = context.ranges.symbols.get(name), context.static.get(name)
        if low_opt_high is None or (source is not None and source.source == "element" and low_opt_high[2] < 0):
            return False
    return True


def _describe(value: ir.Value, context: ProgramContext) -> TensorSpec:
    """A tensor in the network's type, with its shapes in the profile."""
    dtype = data_type_from_ir(value.dtype)
    if dtype is None:
        raise PluginError(f"tensor '{value.name}' has a type plugins cannot have", got=value.dtype)
    dims = context.dims(value) or []
    low, opt, high = context.ranges.at(dims)
    shapes = ShapeRange(min=low, opt=opt, max=tuple(None if size < 0 else size for size in high))
    return TensorSpec(dtype=dtype.numpy.name, dims=tuple(dims), shapes=shapes)


def _find_room(value: ir.Value, context: ProgramContext, sizes: Mapping[str, Expr]) -> tuple[int, ...]:
    """The shape that a tensor needs memory for at the tuned one: the bounds of size tensors."""
    dims = context.dims(value) or []
    bounds = [sizes[dim.name] if isinstance(dim, Symbol) and dim.name in sizes else dim for dim in dims]
    return context.ranges.at(bounds)[1]
