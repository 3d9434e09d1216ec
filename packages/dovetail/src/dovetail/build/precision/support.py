"""Who would run a layer in another type: asked of providers and plugins before the network is changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir

from dovetail.build.assign.layers import NodeLayer, is_constant_node
from dovetail.build.precision.decide import FloatDecision
from dovetail.build.precision.float_types import convert_float_types
from dovetail.build.precision.ports import Ports, is_float
from dovetail.build.tune.combinations import enumerate_combinations, propose_layouts
from dovetail.errors import PluginError
from dovetail.network.inference.shapes import data_type_from_ir
from dovetail.network.plugins import PluginEntry, entry_of
from dovetail.passes.clone import clone_model
from dovetail.plugin.handle import PluginHandle
from dovetail.provider.calls import call
from dovetail.provider.interfaces import Claim, Provider
from dovetail.tensors import TensorSpec
from dovetail.types import DataType

__all__ = ["ProviderQuestions", "find_plugin_ports"]


class ProviderQuestions:
    """What the providers of a build say to nodes, in their order."""

    def __init__(self, model: ir.Model, providers: Sequence[Provider]) -> None:
        self._opsets = model.opset_imports
        self._providers = providers
        self._owners: dict[int, Provider | None] = {}
        nodes = list(model.graph)
        self._places = {node: index for index, node in enumerate(nodes)}
        asked = [i for i, node in enumerate(nodes) if entry_of(node) is None and not is_constant_node(node)]
        claims = [self._ask(provider, [nodes[index] for index in asked]) for provider in providers]
        for place, index in enumerate(asked):
            takers = (provider for provider, row in zip(providers, claims, strict=True) if row[place].taken)
            self._owners[index] = next(takers, None)

    def find_refusals(
        self, model: ir.Model, decisions: Mapping[int, FloatDecision], dtype: ir.DataType
    ) -> dict[int, str]:
        """The nodes that become narrow and that their provider would not take then, with its reason."""
        converted = clone_model(model)
        nodes = list(converted.graph)
        convert_float_types(converted, decisions, dtype, {})
        asked = [
            index for index, decision in decisions.items() if decision.is_narrow and entry_of(nodes[index]) is None
        ]
        refusals: dict[int, str] = {}
        for provider in self._providers:
            own = [index for index in asked if self._owners.get(index) is provider]
            claims = self._ask(provider, [nodes[index] for index in own])
            refusals |= {i: f"{provider.id}: {c.reason}" for i, c in zip(own, claims, strict=True) if not c.taken}
        return refusals

    def refuse_beside(self, node: ir.Node, others: Sequence[ir.Node]) -> str:
        """Why the provider of a node does not take others beside it; empty where it does."""
        owner = self._owners.get(self._places[node])
        if owner is None:
            return "no provider takes it"
        refused = (claim.reason for claim in self._ask(owner, others) if not claim.taken)
        reason = next(refused, None)
        return "" if reason is None else f"{owner.id}: {reason}"

    def refuse_instead(self, node: ir.Node, other: ir.Node) -> str:
        """Why the provider of a node does not take another in its place; empty where it does."""
        return self.refuse_beside(node, [other])

    def _ask(self, provider: Provider, nodes: Sequence[ir.Node]) -> Sequence[Claim]:
        views = [NodeLayer(node, provider.id, self._opsets) for node in nodes]
        return call(provider.id, "get_capability", provider.get_capability, views) if views else []


def find_plugin_ports(graph: ir.Graph, dtype: ir.DataType) -> dict[int, Ports]:
    """For each plugin layer, by its place, which of its tensors become narrow, or why it stays."""
    found: dict[int, Ports] = {}
    for index, node in enumerate(graph):
        entry = entry_of(node)
        if entry is not None and any(is_float(value) for value in (*node.inputs, *node.outputs)):
            found[index] = _ask_plugin(node, entry, dtype)
    return found


def _ask_plugin(node: ir.Node, entry: PluginEntry, dtype: ir.DataType) -> Ports:
    handle = entry.handle.clone()
    try:
        return _try_types(node, entry, handle, dtype)
    except PluginError as error:
        return Ports(refusal=f"plugin '{handle.name}' fails when it is asked: {error.what}")
    finally:
        handle.destroy()


def _try_types(node: ir.Node, entry: PluginEntry, handle: PluginHandle, dtype: ir.DataType) -> Ports:
    values = [value for value in node.inputs[: entry.num_inputs] if value is not None]
    inputs = [dtype if is_float(value) else value.dtype for value in values]
    types = [data_type_from_ir(kind) for kind in inputs]
    if None in types or len(values) != entry.num_inputs or any(v.shape is None for v in (*values, *node.outputs)):
        return Ports(refusal=f"the tensors of plugin '{handle.name}' have no types or ranks to ask it with")
    given = [kind for kind in types if kind is not None]
    outputs = handle.get_output_data_types(given, [None if v.shape is None else len(v.shape) for v in values])
    specs = [_spec(value, kind) for value, kind in zip([*values, *node.outputs], [*given, *outputs], strict=True)]
    layouts = [propose_layouts([TensorSpec(dtype=s.dtype)], s.rank or 0, linear_only=False) for s in specs]
    answer = enumerate_combinations(handle, specs, layouts, entry.num_inputs)
    narrow = data_type_from_ir(dtype)
    if not answer.accepted:
        return Ports(refusal=f"plugin '{handle.name}' takes no {narrow.name if narrow else dtype}")
    return Ports(
        inputs=frozenset(i for i, value in enumerate(values) if is_float(value)),
        outputs=frozenset(i for i, kind in enumerate(outputs) if kind is narrow and is_float(node.outputs[i])),
    )


def _spec(value: ir.Value, dtype: DataType) -> TensorSpec:
    sizes = [dim if isinstance(dim, int) else None for dim in (value.shape or ())]
    return TensorSpec.of(dtype.numpy.name, sizes)
