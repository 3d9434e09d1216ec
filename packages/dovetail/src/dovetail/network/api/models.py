"""A whole ONNX model added to a network: its inputs, weights, nodes and outputs become tensors and layers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from dovetail.errors import ModelError, UsageError
from dovetail.network.api.core import NetworkCore
from dovetail.network.api.emission import OPSETS
from dovetail.network.api.layers.base import ILayer
from dovetail.network.api.layers.basic import IConstantLayer, IIdentityLayer
from dovetail.network.api.layers.onnx_node import IOnnxNodeLayer
from dovetail.network.api.layers.plugin import IPluginV3Layer
from dovetail.network.api.tensor import ITensor
from dovetail.network.inference.shapes import data_type_from_ir, find_io_type, ir_type_from_data_type
from dovetail.network.plugins import PluginEntry, entry_of
from dovetail.provider.defaults import default_providers
from dovetail.types import Dims, Weights

if TYPE_CHECKING:
    from dovetail.loggers import ILogger

__all__ = ["ModelLayers"]


class ModelLayers(NetworkCore):
    """The method that adds a model."""

    __slots__ = ()

    def add_model(
        self,
        model: Any,
        *,
        logger: ILogger | None = None,
        override: Collection[str] = (),
        providers: Sequence[str] | None = None,
    ) -> list[ILayer]:
        """Add a model; tensors, layers and weights have the names that the model gives them.

        Layers may be added to it, and outputs marked and unmarked. A model is the first that a network gets, so that
        its names are free.

        Args:
            model: A path, the bytes of a file, or a model in memory, which is left as it is.
            logger: Where warnings go.
            override: Operators that are plugins although ONNX or a model function has them.
            providers: Who will run it, which decides what is expanded; the default ones without.

        Raises:
            UsageError: The network has inputs or layers already.
            ModelError: The model is wrong, or an input is of a type that networks do not have.
        """
        from dovetail.network.importer.importer import import_model  # the importer writes nodes as this API does
        from dovetail.network.importer.kernels import find_kernel_for

        if self._layers or self._inputs:
            raise UsageError("the network is not empty", where="add_model", fix="add the model to a new network")
        kernels = find_kernel_for(providers or default_providers())
        imported = import_model(model, registry=self.registry, logger=logger, override=override, kernels=kernels)
        _ModelTaking(self, imported).take()
        return list(self._layers)


class _ModelTaking:
    """Turns the parts of one model into those of a network."""

    def __init__(self, network: NetworkCore, model: ir.Model) -> None:
        self._network = network
        self._graph = model.graph
        self._model = model
        self._tensors: dict[ir.Value, ITensor] = {}
        self._stored: set[ir.Value] = set()
        """Constants of types that no tensor of a network has."""
        self._names = {value.name for node in model.graph for value in node.outputs}
        self._names |= {value.name for value in model.graph.inputs}

    def take(self) -> None:
        """Add everything; nothing is added when an input cannot be."""
        inputs = [(value, self._describe_input(value)) for value in self._graph.inputs]
        network = self._network
        if network.has_contract_io:
            for value in self._graph.outputs:
                if value.type is not None:  # a type that is not known yet is checked when the model is written
                    find_io_type(value, f"output '{value.name}'")
        network.name = network.name or self._graph.name or ""
        network._model_opsets = {"": OPSETS[""], **self._model.opset_imports}
        for value, (dtype, shape, names) in inputs:
            tensor = network.add_input(value.name or "", dtype, shape)
            tensor._dimension_names.update(names)
            network._imported_shapes[tensor] = Dims(shape)
            self._tensors[value] = (
                tensor if value.dtype == ir_type_from_data_type(dtype) else self._widen(value, tensor)
            )
        for value in self._graph.initializers.values():
            self._take_weights(value)
        self._plugin_offset = len(network.plugins)
        network.plugins.extend(self._entries())
        for node in self._graph:
            self._take_node(node)
        for value in self._graph.outputs:
            network.mark_output(self._output_tensor(value))

    def _widen(self, value: ir.Value, tensor: ITensor) -> ITensor:
        """Add a cast to the type that the nodes of the model read an input in."""
        node = ir.node("Cast", [ir.Value(name=value.name)], {"to": value.dtype}, name=f"{value.name}/Cast")
        layer = IOnnxNodeLayer(
            self._network, node, [tensor], stored={}, captured={}, body_constants=[], plugin_offset=0
        )
        self._name_layer(layer, node.name or "")
        layer._outputs[0]._name = self._free_name(f"{value.name}_cast")
        return self._network._add_layer(layer)._outputs[0]

    def _describe_input(self, value: ir.Value) -> tuple[Any, list[int], dict[int, str]]:
        where = f"input '{value.name}'"
        has_contract_io = self._network.has_contract_io and value.type is not None
        dtype = find_io_type(value, where) if has_contract_io else data_type_from_ir(value.dtype)
        if dtype is None or value.shape is None:
            what = "it has a type that networks do not have" if dtype is None else "it has no shape"
            raise ModelError(
                what, where=f"input '{value.name}'", got=value.type, fix="use dovetail.compile, or cast it in the model"
            )
        dims = list(value.shape)
        names = {axis: dim.value for axis, dim in enumerate(dims) if isinstance(dim, ir.SymbolicDim) and dim.value}
        return dtype, [dim if isinstance(dim, int) else -1 for dim in dims], names

    def _take_weights(self, value: ir.Value) -> None:
        constant, dtype = value.const_value, data_type_from_ir(value.dtype)
        if constant is None or dtype is None or len(constant.shape) > Dims.MAX_DIMS:
            self._stored.add(value)
            return
        array = constant.numpy()
        layer = IConstantLayer(self._network, array.shape, Weights(array))
        self._name_layer(layer, value.name or "")
        self._network._weights_names[layer, "constant"] = value.name or ""
        layer._outputs[0]._name = self._free_name(f"{value.name}_output")
        self._network._add_layer(layer)
        self._tensors[value] = layer._outputs[0]

    def _free_name(self, name: str) -> str:
        while name in self._names:
            name += "_"
        self._names.add(name)
        return name

    def _name_layer(self, layer: ILayer, name: str) -> None:
        layer._name = name or layer._name

    def _entries(self) -> list[PluginEntry]:
        """The plugins of the model in the order of their numbers, which count from 0."""
        found = {
            node.attributes["plugin"].as_int(): entry
            for node in self._graph.all_nodes()
            if (entry := entry_of(node)) is not None
        }
        return [found[number] for number in sorted(found)]

    def _take_node(self, node: ir.Node) -> None:
        entry = entry_of(node)
        layer = self._make_layer(node) if entry is None else self._make_plugin_layer(node, entry)
        self._name_layer(layer, node.name or "")
        for tensor, value in zip(layer._outputs, node.outputs, strict=True):
            tensor._name = value.name or self._free_name(f"{layer.name}:{tensor._index}")
            self._tensors[value] = tensor
        self._network._add_layer(layer)

    def _make_layer(self, node: ir.Node) -> ILayer:
        stored = {i: value for i, value in enumerate(node.inputs) if value is not None and value in self._stored}
        inputs = [None if v is None or v in self._stored else self._tensors[v] for v in node.inputs]
        read = list(_captures(node))
        return IOnnxNodeLayer(
            self._network,
            node,
            inputs,
            stored=stored,
            captured={value: self._tensors[value] for value in read if value in self._tensors},
            body_constants=[value for value in read if value in self._stored],
            plugin_offset=self._plugin_offset,
        )

    def _make_plugin_layer(self, node: ir.Node, entry: PluginEntry) -> ILayer:
        number = node.attributes["plugin"].as_int() + self._plugin_offset
        tensors = [self._tensors[value] for value in node.inputs if value is not None]
        return IPluginV3Layer(self._network, tensors, entry, number)

    def _output_tensor(self, value: ir.Value) -> ITensor:
        """What is marked: an output that is an input or a weight passes through a layer."""
        tensor = self._tensors[value]
        if not tensor.is_network_input and tensor not in self._network._outputs:
            return tensor
        layer = self._network._add_layer(IIdentityLayer(self._network, [tensor]))
        layer._outputs[0]._name = self._free_name(f"{value.name}_output")
        return layer._outputs[0]


def _captures(node: ir.Node) -> Iterator[ir.Value]:
    """The values that bodies of a node read from outside, each once."""
    seen: set[ir.Value] = set()
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            graph = attribute.as_graph()
            read = [value for inner in graph.all_nodes() for value in inner.inputs if value is not None]
            for value in [*read, *graph.outputs, *(o for g in graph.subgraphs() for o in g.outputs)]:
                if value not in seen:
                    seen.add(value)
                    yield value
