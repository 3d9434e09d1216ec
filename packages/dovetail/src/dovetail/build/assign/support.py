"""Which nodes of a model could run here, and on what: asked without building anything.

For hosts that divide a model between Dovetail and others, and for whoever wants to know before a build. The model is
taken as it is: what an import would rewrite (old opsets, functions) counts as its nodes say.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import onnx_ir as ir

from dovetail.build.assign.layers import CONTROL_FLOW, NodeLayer, body_graphs, is_constant_node, opset_of
from dovetail.errors import ProviderError, UsageError
from dovetail.loggers import Logger
from dovetail.network.importer.kernels import Served
from dovetail.network.importer.plugins import PluginImport
from dovetail.network.importer.problems import Problems
from dovetail.network.onnx_schema import find_schema
from dovetail.network.plugins import entry_of
from dovetail.plugin.registry import PluginRegistry, get_plugin_registry
from dovetail.provider.calls import call
from dovetail.provider.defaults import default_providers
from dovetail.provider.interfaces import Claim, Provider
from dovetail.provider.options import Providers

__all__ = ["PLUGIN", "Support", "find_support"]

PLUGIN: Final = "plugin"
"""What stands for the provider of a node that a registered plugin runs."""


@dataclass(frozen=True, kw_only=True)
class Support:
    """The answer for one node."""

    node: ir.Node
    provider: str | None
    """The first provider that takes it, ``PLUGIN``, or None."""
    reason: str = ""
    """Why the providers before it do not, or, where nobody takes the node, why each does not."""

    @property
    def is_plugin(self) -> bool:
        """Whether a registered plugin runs the node."""
        return self.provider == PLUGIN


def find_support(
    model: ir.Model,
    *,
    graph: ir.Graph | None = None,
    providers: Sequence[str] | None = None,
    options: Mapping[str, Mapping[str, str]] | None = None,
    registry: PluginRegistry | None = None,
    override: Collection[str] = (),
) -> list[Support]:
    """Say for each node of a graph who would run it, in the order of the nodes.

    Args:
        model: The model; values should have types.
        graph: One of its graphs; the outermost by default. A node with bodies is taken when all nodes in them are.
        providers: Back ends in order of preference.
        options: Options of providers, by name.
        registry: Where plugins are looked up; the global registry by default.
        override: Operators that are plugins although ONNX has them.
    """
    _require_model(model)
    names = list(default_providers() if providers is None else providers)
    lookup = Providers(options)
    found = [lookup[name] for name in names]
    plugins = PluginImport(registry or get_plugin_registry(), Logger(), override, Problems())
    return _PluginSearch(model, found, plugins).look(list(graph or model.graph))


def _require_model(model: Any) -> None:
    if isinstance(model, ir.Model):
        return
    is_path = isinstance(model, str | os.PathLike)
    what = f"{os.fspath(model)!r} is a path and not a model" if is_path else "this is no onnx-ir model"
    fix = "read it first: find_support(onnx_ir.load(path))" if is_path else "convert it: onnx_ir.from_proto(model)"
    raise UsageError(what, where="find_support", expected="an onnx_ir.Model", got=type(model).__name__, fix=fix)


class _PluginSearch:
    def __init__(self, model: ir.Model, providers: Sequence[Provider], plugins: PluginImport) -> None:
        self._opsets = model.opset_imports
        self._served = Served(model, self._has_kernel)
        self._providers = providers
        self._plugins = plugins

    def look(self, nodes: Sequence[ir.Node]) -> list[Support]:
        plugins = {node for node in nodes if self._is_plugin(node)}
        plain = [node for node in nodes if node not in plugins and not _is_control(node)]
        claims = {provider.id: self._ask(provider, plain) for provider in self._providers}
        answers = {
            node: Support(node=node, provider=PLUGIN, reason="a plugin of its name is registered") for node in plugins
        }
        answers |= {node: self._answer_plain(node, claims, index) for index, node in enumerate(plain)}
        return [answers[node] if node in answers else self._answer_control(node) for node in nodes]

    def _ask(self, provider: Provider, nodes: Sequence[ir.Node]) -> Sequence[Claim]:
        views = [NodeLayer(node, provider.id, self._opsets) for node in nodes]
        claims = call(provider.id, "get_capability", provider.get_capability, views)
        if len(claims) != len(views):
            raise ProviderError(
                "get_capability gave another number of claims",
                where=f"provider '{provider.id}'",
                expected=len(views),
                got=len(claims),
            )
        return claims

    def _answer_plain(self, node: ir.Node, claims: Mapping[str, Sequence[Claim]], index: int) -> Support:
        if is_constant_node(node):
            return Support(node=node, provider=self._providers[-1].id, reason="a constant is stored and not run")
        refused: list[str] = []
        for name, row in claims.items():
            if row[index].taken:
                return Support(node=node, provider=name, reason="; ".join(refused) or "it is the first that takes it")
            refused.append(f"{name}: {row[index].reason or 'not taken'}")
        return Support(node=node, provider=None, reason="; ".join(refused))

    def _answer_control(self, node: ir.Node) -> Support:
        inner = [support for graph in body_graphs(node) for support in self.look(list(graph))]
        missing = next((support for support in inner if support.provider is None), None)
        if missing is not None:
            return Support(node=node, provider=None, reason=f"in its body, {missing.node.op_type}: {missing.reason}")
        return Support(node=node, provider=self._providers[-1].id, reason="the host runs control flow")

    def _is_plugin(self, node: ir.Node) -> bool:
        """Whether a registered plugin runs a node, as it would in a build."""
        if entry_of(node) is not None:  # the import has made it already
            return True
        if not self._plugins.has_creator(node):
            return False
        domain = "" if node.domain == "ai.onnx" else node.domain
        schema = find_schema(node.op_type, domain, opset_of(self._opsets, domain))
        return self._plugins.takes(node, schema, self._served)

    def _has_kernel(self, op: str, domain: str, opset: int) -> bool:
        return any(provider.kernels.find(op, domain, opset) is not None for provider in self._providers)


def _is_control(node: ir.Node) -> bool:
    return node.domain in ("", "ai.onnx") and node.op_type in CONTROL_FLOW
