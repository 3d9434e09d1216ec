"""Custom layers for people in a hurry: a NumPy function becomes a plugin, its creator and a registered operator.

Under the decorator is the same contract as everywhere: ``layer(...)`` makes an ``IPluginV3`` and an
``IPluginCreatorV3One``, so the builder, the runtime, plans and the contract checker see nothing special. What needs
more than this (data-dependent shapes, workspace, aliased outputs) is written against the contract itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from dovetail.errors import PluginError, UsageError
from dovetail.expr import DimsExprs, IExprBuilder
from dovetail.plugin._signature import LayerSignature, read_signature
from dovetail.plugin.arrays import as_array
from dovetail.plugin.attributes import attributes_from_fields, describe_attributes, fields_from_attributes
from dovetail.plugin.fields import PluginFieldCollection, iterate_fields
from dovetail.plugin.interfaces import (
    IPluginCapability,
    IPluginCreatorV3One,
    IPluginResourceContext,
    IPluginV3,
    IPluginV3OneBuild,
    IPluginV3OneCore,
    IPluginV3OneRuntime,
    PluginCapabilityType,
)
from dovetail.plugin.registry import get_plugin_registry, register_statically
from dovetail.plugin.symbolic import SymbolicDim, expr_from_dim
from dovetail.types import DataType, DynamicPluginTensorDesc, PluginTensorDesc, TensorFormat, TensorRTPhase

__all__ = ["LayerCreator", "LayerPlugin", "QuickLayer", "layer"]

_MAX_BOUND: Final = 8
"""Sets of addresses that a plugin stays bound to."""

_FLOATS: Final = (DataType.FLOAT, DataType.HALF, DataType.BF16)


def layer(
    name: str,
    *,
    version: str = "1",
    tactics: Sequence[str] = (),
    outputs: int = 1,
    formats: Sequence[TensorFormat] = (TensorFormat.LINEAR,),
    shape: Callable[..., Any] | None = None,
    types: Callable[..., Any] | None = None,
) -> Callable[[Callable[..., Any]], QuickLayer]:
    """Make a custom layer of a function on arrays.

    Positional parameters of the function are the inputs, as read-only arrays. Keyword parameters are attributes; their
    kind comes from the annotation or the default. Two names are special: ``tactic`` gets one of ``tactics``, and
    ``out`` gets the output array (a tuple of them when there are several) to write into. Without ``out`` the function
    returns its output, or a tuple of outputs.

    Args:
        name: The operator's name, after ``namespace::`` when it is in one. An ONNX node of this type finds it.
        version: The plugin's version.
        tactics: Names of the ways to compute the layer; the builder times them all.
        outputs: How many outputs there are.
        formats: The formats that the function can take; all inputs and outputs have the same one, and arrays have its
            physical shape. More than LINEAR suits functions that treat every element alike.
        shape: Output dims from input dims, ``shape(x, y, *, attribute)``; by default those of the first input. With
            several outputs it returns a tuple of shapes. It may also be given later, with ``@the_layer.shape``.
        types: Output types from input types, None for types that the layer does not take; by default inputs are all
            FLOAT, HALF or BF16, and so are outputs. It may also be given later, with ``@the_layer.types``.

    >>> @layer("doc::scaled_relu", tactics=("where", "maximum"))
    ... def scaled_relu(x, *, alpha: float = 1.0, tactic: str = "where"):
    ...     if tactic == "where":
    ...         return np.where(x > 0, x * alpha, 0)
    ...     return np.maximum(x, 0) * alpha
    >>> scaled_relu(np.array([-1.0, 2.0]), alpha=3.0).tolist()
    [0.0, 6.0]
    >>> scaled_relu.plugin(alpha=3.0).get_valid_tactics()
    [1, 2]
    """

    def decorate(function: Callable[..., Any]) -> QuickLayer:
        made = QuickLayer(function, name, version, tactics, outputs, tuple(formats))
        if shape is not None:
            made.shape(shape)
        if types is not None:
            made.types(types)
        made.register()
        return made

    return decorate


class QuickLayer:
    """A function as a custom layer: call it on arrays, or put ``plugin(...)`` of it into a network."""

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        version: str,
        tactics: Sequence[str],
        outputs: int,
        formats: tuple[TensorFormat, ...],
    ) -> None:
        self.namespace, _, self.name = name.rpartition("::")
        self.version = version
        self.outputs = outputs
        self.formats = formats
        self.function = function
        self.signature: LayerSignature = read_signature(function, tactics)
        self.tactics = tuple(tactics)
        self._shape: Callable[..., Any] | None = None
        self._types: Callable[..., Any] = _same_float
        if not self.name or outputs < 1 or not formats:
            raise UsageError(
                "a layer needs a name, at least one output and at least one format", got=(name, outputs, formats)
            )
        self.creator: Final = LayerCreator(self)

    def __call__(self, *arrays: Any, **attributes: Any) -> Any:
        """Run the function itself, without an engine."""
        return self.function(*arrays, **attributes)

    def __repr__(self) -> str:
        return f"<{self.where}>"

    @property
    def where(self) -> str:
        """How messages name this layer."""
        name = f"{self.namespace}::{self.name}" if self.namespace else self.name
        return f"layer '{name}' ({self.signature.place})"

    def plugin(self, **attributes: Any) -> LayerPlugin:
        """A plugin for ``add_plugin_v3``, with these attributes."""
        return LayerPlugin(self, self.signature.fill(attributes, self.where))

    def shape(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Decorate the function that gives output dims from input dims and attributes."""
        self._shape = function
        return function

    def types(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Decorate the function that gives output types from input types, None for types that are not taken."""
        self._types = function
        return function

    def register(self) -> None:
        """Register the creator, in the global registry or with the library that is being imported.

        A layer that is defined again, by the same name in the same module, takes the place of the first: that is what
        running a notebook cell twice means.
        """
        registry = get_plugin_registry()
        known = registry.find_creator(self.name, self.version, self.namespace)
        if isinstance(known, LayerCreator) and known.layer.signature.identity == self.signature.identity:
            registry.deregister_creator(known)
        register_statically(self.creator, self.namespace)

    def infer_types(self, input_types: Sequence[DataType]) -> tuple[DataType, ...] | None:
        """The output types, or None when the layer does not take these inputs."""
        self._check_count(len(input_types))
        result = self._types(*input_types)
        if result is None:
            return None
        types = (result,) * self.outputs if isinstance(result, DataType) else tuple(result)
        if len(types) != self.outputs or not all(isinstance(dtype, DataType) for dtype in types):
            raise PluginError(
                "the types function must return a DataType, or one for each output",
                where=self.where,
                expected=f"{self.outputs} types",
                got=result,
            )
        return types

    def infer_shapes(self, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> list[DimsExprs]:
        """The output dims as expressions."""
        self._check_count(len(inputs))
        if self._shape is None:
            if not inputs:
                raise PluginError("a layer without inputs has no default shape", where=self.where, fix="pass shape=")
            return [DimsExprs(inputs[0]) for _ in range(self.outputs)]
        dims = [tuple(SymbolicDim(expr) for expr in shape) for shape in inputs]
        result = self._shape(*dims, **self.signature.select(self._shape, attributes))
        shapes = [result] if self.outputs == 1 and not _is_nested(result) else list(result)
        if len(shapes) != self.outputs:
            raise PluginError(
                "the shape function must return one shape for each output",
                where=self.where,
                expected=f"{self.outputs} shapes",
                got=result,
            )
        return [DimsExprs([expr_from_dim(dim) for dim in shape]) for shape in shapes]

    def accepts(self, pos: int, in_out: Sequence[DynamicPluginTensorDesc], num_inputs: int) -> bool:
        """Whether position ``pos`` fits the positions below it."""
        desc = in_out[pos].desc
        if desc.format not in self.formats or desc.format != in_out[0].desc.format:
            return False
        if pos < num_inputs - 1:
            return self._types is not _same_float or _same_float(*_types_of(in_out, pos + 1)) is not None
        outputs = self.infer_types(_types_of(in_out, num_inputs))
        return outputs is not None and (pos < num_inputs or desc.type == outputs[pos - num_inputs])

    def _check_count(self, count: int) -> None:
        if not self.signature.takes_inputs(count):
            expected = ", ".join(self.signature.inputs) or "none"
            raise PluginError("wrong number of inputs", where=self.where, expected=expected, got=count)

    def bind(self, inputs: Sequence[Any], outputs: Sequence[Any], keywords: Mapping[str, Any]) -> Callable[[], None]:
        """The function over these arrays; a call sees to it that every output is written."""
        if self.signature.takes_out:
            return self._bind_with_out(inputs, outputs, keywords)
        if self.outputs == 1 and len(inputs) == 1 and not keywords:
            return self._bind_one(inputs[0], outputs[0])
        function, store = self.function, self._store_all

        def run() -> None:
            store(function(*[array.view() for array in inputs], **keywords), outputs)

        return run

    def _bind_with_out(
        self, inputs: Sequence[Any], outputs: Sequence[Any], keywords: Mapping[str, Any]
    ) -> Callable[[], None]:
        function, is_one = self.function, self.outputs == 1

        def run() -> None:
            out = outputs[0].view() if is_one else tuple([array.view() for array in outputs])
            function(*[array.view() for array in inputs], **keywords, out=out)

        return run

    def _bind_one(self, array: Any, target: Any) -> Callable[[], None]:
        """The plainest kind, in as few steps as can be: it often runs after other code has had the caches."""
        function, view, store, array_type = self.function, array.view, self._store_all, np.ndarray
        shape, dtype = target.shape, target.dtype

        def run() -> None:
            result = function(view())
            if result.__class__ is array_type and result.dtype is dtype and result.shape == shape:
                target[...] = result
            else:
                store(result, (target,))

        return run

    def _store_all(self, result: Any, outputs: Sequence[Any]) -> None:
        if result is None:
            raise PluginError(
                "the function returned nothing", where=self.where, fix="return the output, or take it: *, out"
            )
        results = (result,) if self.outputs == 1 and not isinstance(result, tuple | list) else result
        if not isinstance(results, tuple | list) or len(results) != self.outputs:
            raise PluginError(
                "the function must return one array for each output",
                where=self.where,
                expected=f"{self.outputs} arrays",
                got=type(result).__name__ if not isinstance(results, tuple | list) else f"{len(results)}",
            )
        for index, (target, value) in enumerate(zip(outputs, results, strict=True)):
            self._store(index, target, np.asarray(value))

    def _store(self, index: int, target: Any, value: Any) -> None:
        if value.shape != target.shape:
            raise PluginError(
                f"output {index} has another shape than declared",
                where=self.where,
                expected=target.shape,
                got=value.shape,
                fix="return that shape, or declare the right one with shape=",
            )
        if value.dtype is not target.dtype and not np.can_cast(value.dtype, target.dtype, "same_kind"):
            raise PluginError(
                f"output {index} has a type that does not fit the declared one",
                where=self.where,
                expected=target.dtype.name,
                got=value.dtype.name,
                fix="cast in the function, or declare the right type with types=",
            )
        np.copyto(target, value, casting="same_kind")


def _same_float(*types: DataType) -> DataType | None:
    """The default rule: float inputs of one type, outputs as the inputs, FLOAT when there are no inputs."""
    if not types:
        return DataType.FLOAT
    return types[0] if types[0] in _FLOATS and all(dtype == types[0] for dtype in types) else None


def _types_of(in_out: Sequence[DynamicPluginTensorDesc], count: int) -> list[Any]:
    return [in_out[index].desc.type for index in range(count)]


def _is_nested(shapes: Any) -> bool:
    return bool(len(shapes)) and all(isinstance(shape, tuple | list) for shape in shapes)


class LayerCreator(IPluginCreatorV3One):
    """Makes the plugins of one layer."""

    def __init__(self, layer: QuickLayer) -> None:
        super().__init__()
        self.layer = layer
        self.name = layer.name
        self.plugin_version = layer.version
        self.plugin_namespace = layer.namespace
        self.field_names = PluginFieldCollection(layer.signature.field_names())
        self.__wrapped__ = layer.function  # so that messages name the file of the function

    def create_plugin(self, name: str, field_collection: PluginFieldCollection, phase: TensorRTPhase) -> LayerPlugin:
        """A plugin with the attributes that the fields hold."""
        layer, fields = self.layer, list(iterate_fields(field_collection))
        try:
            values = attributes_from_fields(layer.signature.attributes, fields)
        except (PluginError, UsageError) as error:
            raise PluginError(
                error.what, where=layer.where, expected=error.expected, got=error.got, fix=error.fix
            ) from error
        return LayerPlugin(layer, layer.signature.fill(values, layer.where))


class _BoundLayer:
    """A layer over the addresses of a run; until shapes change, most runs have those of the one before."""

    __slots__ = ("input_desc", "inputs", "output_desc", "outputs", "run")

    def __init__(
        self,
        layer: QuickLayer,
        keywords: Mapping[str, Any],
        input_desc: Sequence[PluginTensorDesc],
        output_desc: Sequence[PluginTensorDesc],
        inputs: Sequence[int],
        outputs: Sequence[int],
    ) -> None:
        self.input_desc, self.output_desc = input_desc, output_desc
        self.inputs, self.outputs = list(inputs), list(outputs)
        arrays = [as_array(address, desc) for address, desc in zip(inputs, input_desc, strict=True)]
        for array in arrays:
            array.setflags(write=False)
        targets = [as_array(address, desc) for address, desc in zip(outputs, output_desc, strict=True)]
        self.run = layer.bind(arrays, targets, keywords)


class LayerPlugin(IPluginV3, IPluginV3OneCore, IPluginV3OneBuild, IPluginV3OneRuntime):
    """One layer with its attributes: all three capabilities in one object."""

    def __init__(self, layer: QuickLayer, attributes: Mapping[str, Any], tactic: int = 0) -> None:
        super().__init__()
        self._layer = layer
        self._attributes = dict(attributes)
        self.plugin_name = layer.name
        self.plugin_version = layer.version
        self.plugin_namespace = layer.creator.plugin_namespace
        self.num_outputs = layer.outputs
        self.metadata_string = describe_attributes(attributes)
        self.timing_cache_id = f"{layer.signature.digest} {self.metadata_string}"
        self.tactic_names = dict(enumerate(layer.tactics, 1))
        self._bound: _BoundLayer | None = None
        self._known: dict[tuple[int, ...], _BoundLayer] = {}
        self._described: list[Any] = []
        self.set_tactic(tactic)

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes, as a copy."""
        return dict(self._attributes)

    def get_capability_interface(self, type: PluginCapabilityType) -> IPluginCapability:  # noqa: A002
        """This object, for every capability."""
        return self

    def clone(self) -> LayerPlugin:
        """A twin with the same attributes and tactic; arrays among the attributes are read-only and shared."""
        return LayerPlugin(self._layer, self._attributes, self._tactic)

    def get_output_data_types(self, input_types: Sequence[DataType]) -> list[DataType]:
        """The types that the layer's rule gives."""
        types = self._layer.infer_types(input_types)
        if types is None:
            raise PluginError(
                "the layer does not take these input types",
                where=self._layer.where,
                got=", ".join(DataType(dtype).name for dtype in input_types),
                fix="cast the inputs, or say what the layer takes with types=",
            )
        return list(types)

    def get_output_shapes(
        self,
        inputs: Sequence[DimsExprs],
        shape_inputs: Sequence[DimsExprs],
        exprBuilder: IExprBuilder,  # noqa: N803
    ) -> list[DimsExprs]:
        """The dims that the layer's shape function gives."""
        return self._layer.infer_shapes(inputs, self._attributes)

    def configure_plugin(self, in_: Sequence[DynamicPluginTensorDesc], out: Sequence[DynamicPluginTensorDesc]) -> None:
        """Nothing: the function reads what it needs from its arrays."""

    def supports_format_combination(self, pos: int, in_out: Sequence[DynamicPluginTensorDesc], num_inputs: int) -> bool:
        """One format for all, and the types of the layer's rule."""
        return self._layer.accepts(pos, in_out, num_inputs)

    def get_valid_tactics(self) -> list[int]:
        """1, 2, ... for the layer's tactics in order."""
        return list(range(1, len(self._layer.tactics) + 1))

    def set_tactic(self, tactic: int) -> None:
        """Use this tactic from now on; 0 is the function's own default."""
        tactics = self._layer.tactics
        if not 0 <= tactic <= len(tactics):
            raise PluginError("no such tactic", where=self._layer.where, expected=f"0 to {len(tactics)}", got=tactic)
        self._tactic = tactic
        self._keywords = dict(self._attributes)
        if tactics and (tactic or not self._layer.signature.has_default_tactic):
            self._keywords["tactic"] = tactics[max(tactic - 1, 0)]
        self._forget()

    def _forget(self) -> None:
        self._bound = None
        self._known.clear()

    def on_shape_change(self, in_: Sequence[PluginTensorDesc], out: Sequence[PluginTensorDesc]) -> None:
        """Views may have other shapes now; the function reads all else that it needs from its arrays."""
        described = [(desc.type, desc.format, *desc.dims) for desc in (*in_, *out)]
        if described != self._described:
            self._described = described
            self._forget()

    def enqueue(
        self,
        input_desc: Sequence[PluginTensorDesc],
        output_desc: Sequence[PluginTensorDesc],
        inputs: Sequence[int],
        outputs: Sequence[int],
        workspace: int,
        stream: int,
    ) -> None:
        """Run the function on views of the inputs and put its results into the outputs.

        The function gets views of its own: it may give an array another shape.
        """
        bound = self._bound
        if (
            bound is None
            or input_desc is not bound.input_desc
            or output_desc is not bound.output_desc
            or inputs != bound.inputs
            or outputs != bound.outputs
        ):
            bound = self._bound = self._bind(input_desc, output_desc, inputs, outputs)
        bound.run()

    def _bind(
        self,
        input_desc: Sequence[PluginTensorDesc],
        output_desc: Sequence[PluginTensorDesc],
        inputs: Sequence[int],
        outputs: Sequence[int],
    ) -> _BoundLayer:
        """The layer over these addresses, which a host with few buffers gives again and again."""
        addresses = (*inputs, *outputs)
        bound = self._known.get(addresses)
        if bound is None or bound.input_desc is not input_desc or bound.output_desc is not output_desc:
            if len(self._known) >= _MAX_BOUND:
                self._known.clear()
            bound = _BoundLayer(self._layer, self._keywords, input_desc, output_desc, inputs, outputs)
            self._known[addresses] = bound
        return bound

    def attach_to_context(self, resource_context: IPluginResourceContext) -> LayerPlugin:
        """A clone: layers use nothing of the context."""
        return self.clone()

    def get_fields_to_serialize(self) -> PluginFieldCollection:
        """All attributes."""
        return fields_from_attributes(self._layer.signature.attributes, self._attributes)
