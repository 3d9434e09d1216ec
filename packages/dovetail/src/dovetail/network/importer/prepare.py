"""A model that was read, made ready to build: functions expanded, operators at an opset that somebody runs, plugins.

What is wrong is gathered, and told in one error before anything is made from the model: the form of every node, every
operator that nobody has, every function. Then the plugins are made and the whole model gets types and shapes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Final

import onnx_ir as ir

from dovetail.errors import UnsupportedOpError
from dovetail.growth import DEFAULT_GROWTH, GrowthLimits
from dovetail.loggers import ILogger, Severity
from dovetail.network.api.emission import DOVETAIL_DOMAIN
from dovetail.network.importer.bodies import expand_bodies
from dovetail.network.importer.counters import pass_scalar_counters
from dovetail.network.importer.functions import inline_functions
from dovetail.network.importer.kernels import FindKernel, Served
from dovetail.network.importer.plugins import PluginImport, PluginRequest
from dovetail.network.importer.problems import Problems, describe_node, mark_bodies, quote
from dovetail.network.importer.shapes import infer_shapes
from dovetail.network.inference.symbols import rename_dims
from dovetail.network.onnx_schema import SchemaCheck
from dovetail.network.opsets.convert import convert_opset
from dovetail.network.opsets.legacy import LEGACY_TARGET, modernise
from dovetail.network.opsets.versions import schema_versions
from dovetail.network.plugins import PLUGIN_DOMAIN, entry_of
from dovetail.plugin.registry import PluginRegistry
from dovetail.provider.schemas.contrib_schemas import ContribSchema

__all__ = ["Preparation"]

_OURS: Final = (DOVETAIL_DOMAIN, PLUGIN_DOMAIN)


@dataclass
class Preparation:
    """Makes one model ready.

    Args:
        model: Changed in place, or left for another one that ``run`` returns.
        registry: Where plugins are looked up.
        logger: Told what was decided and changed.
        override: Operators that are plugins although ONNX or a model function has them.
        kernels: Says which operators have a kernel.
        problems: What is known to be wrong already, and what is found.
        limits: How many nodes there may be when functions and operators are expanded.
    """

    model: ir.Model
    registry: PluginRegistry
    logger: ILogger
    override: Collection[str]
    kernels: FindKernel
    problems: Problems
    limits: GrowthLimits = DEFAULT_GROWTH

    def __post_init__(self) -> None:
        self._plugins = PluginImport(self.registry, self.logger, self.override, self.problems)

    def run(self) -> ir.Model:
        """The model that is ready; everything wrong with it is one error."""
        opsets = self.model.opset_imports
        if "ai.onnx" in opsets:
            opsets.setdefault("", opsets.pop("ai.onnx"))  # two names of one operator set
        _drop_default_inputs(self.model.graph, self.logger)
        inline_functions(self.model, self._plugins.is_requested, self.problems, self.limits)
        pass_scalar_counters(self.model)
        requests = self.check()
        self.problems.raise_if_any()
        if self._raise_opset({request.node for request in requests}):
            requests = self.check()
            self.problems.raise_if_any()
        self._make_plugins(requests)
        rename_dims(self.model)
        self._type()
        return self.model

    # looking

    def check(self) -> list[PluginRequest]:
        """Sort nodes into operators, which are checked, and plugins, which are looked up; nothing is made yet."""
        _name_nodes(self.model)
        mark_bodies(self.model.graph)
        check = SchemaCheck(self.model.opset_imports, self.problems)
        served = Served(self.model, self.kernels)
        plugins = []
        for node in self._nodes():
            if self._is_plugin(node, check.schema_of(node), served):
                plugins.append(node)
            else:
                check.check(node, runs=served.has_kernel(node))
        for value in self.model.graph.inputs:
            if value.type is None:
                self.problems.add("it has no element type", where=f"input {quote(value.name)}")
        return self._plugins.find(plugins, self.model.opset_imports)

    def _nodes(self) -> Iterator[ir.Node]:
        """All nodes that are not ours already; those of functions too, when these could not be expanded."""
        graphs = [self.model.graph, *(function.graph for function in self.model.functions.values())]
        for graph in graphs:
            for node in graph.all_nodes():
                is_ours = entry_of(node) is not None or node.domain in _OURS
                is_open = any(attribute.is_ref() for attribute in node.attributes.values()) and self.model.functions
                if not is_ours and not is_open and node.op_identifier() not in self.model.functions:
                    yield node

    def _is_plugin(self, node: ir.Node, schema: Any | None, served: Served) -> bool:
        if not self._plugins.takes(node, schema, served):
            return False
        is_known = schema is not None and not (isinstance(schema, ContribSchema) and not node.domain)
        if is_known and not self._plugins.is_requested(node) and self._plugins.has_creator(node):
            where = describe_node(node, self.model.opset_imports.get(node.domain))
            self.logger.log(Severity.INFO, f"{where}: no provider has a kernel, so the plugin of that name is used")
        return True

    # changing

    def _raise_opset(self, plugins: Collection[ir.Node]) -> bool:
        """Bring the model to an opset at which its operators have kernels; False when there is nothing to do."""
        opset = self.model.opset_imports.get("")
        unserved = self._unserved(plugins)
        if opset is None or not unserved:
            return False
        if opset < LEGACY_TARGET:
            modernise(self.model, lambda node: node.domain != "" or node in plugins, self.problems)
            self.problems.raise_if_any()
            self._tell_opset(opset, unserved)
            opset, unserved = LEGACY_TARGET, self._unserved(plugins)
        later = {v for node in unserved for v in schema_versions(node.op_type, "") if v > opset}
        for target in sorted(later):
            if self._convert(unserved, target, plugins):
                return True
        return self.model.opset_imports[""] == LEGACY_TARGET

    def _convert(self, unserved: list[ir.Node], target: int, plugins: Collection[ir.Node]) -> bool:
        """Try one opset; when it does not serve all, the model stays as it is."""
        opset = self.model.opset_imports[""]
        try:
            model = convert_opset(self.model, target, lambda node: node.domain != "" or node in plugins)
        except UnsupportedOpError as error:
            for node in unserved:
                what = f"no provider has a kernel for it, and {error.what}"
                where = describe_node(node, opset)
                self.problems.add(what, where=where, kind=UnsupportedOpError, fix=error.fix)
            self.problems.raise_if_any()
            raise
        before, self.model = self.model, model
        names = {node.name for node in plugins}
        if self._unserved({node for node in model.graph.all_nodes() if node.name in names}):
            self.model = before
            return False
        self._tell_opset(opset, unserved)
        return True

    def _unserved(self, plugins: Collection[ir.Node]) -> list[ir.Node]:
        """The ONNX operators of the model that nobody runs as they are."""
        served = Served(self.model, self.kernels)
        nodes = [node for node in self._nodes() if node.domain == "" and node not in plugins]
        return [node for node in nodes if not (served.has_kernel(node) or served.has_body(node))]

    def _tell_opset(self, opset: int, unserved: list[ir.Node]) -> None:
        ops = ", ".join(sorted({node.op_type for node in unserved}))
        target = self.model.opset_imports[""]
        self.logger.log(
            Severity.INFO,
            f"the model was converted from opset {opset} to {target}; no provider runs these before: {ops}",
        )

    def _make_plugins(self, requests: list[PluginRequest]) -> None:
        self._plugins.convert(requests, _next_index(self.model))
        self.problems.raise_if_any()
        if any(entry_of(node) is not None for node in self.model.graph.all_nodes()):
            self.model.opset_imports[PLUGIN_DOMAIN] = 1

    def _type(self) -> None:
        infer_shapes(self.model, self.logger, self.problems)
        self.problems.raise_if_any()
        has_kernel = Served(self.model, self.kernels).has_kernel
        lines = expand_bodies(self.model, has_kernel, self.problems, self.limits)
        self.problems.raise_if_any()
        for line in lines:
            self.logger.log(Severity.INFO, f"{line}, which no provider has a kernel for")


def _drop_default_inputs(graph: ir.Graph, logger: ILogger) -> None:
    """An input with an initializer is a weight: old files list every weight among the inputs."""
    names = [value.name for value in graph.inputs if value.name in graph.initializers]
    for value in [value for value in graph.inputs if value.name in graph.initializers]:
        graph.inputs.remove(value)
    if names:
        logger.log(Severity.VERBOSE, f"{len(names)} input(s) have initializers and are weights: {names[:5]}")


def _name_nodes(model: ir.Model) -> None:
    """Every node gets a name that no other has; the ones in the file come first."""
    nodes = list(model.graph.all_nodes())
    taken: set[str] = set()
    unnamed = []
    for node in nodes:
        if not node.name or node.name in taken:
            unnamed.append(node)
        else:
            taken.add(node.name)
    counts: dict[str, int] = {}
    for node in unnamed:
        base = node.name or node.op_type
        name = base
        while name in taken:
            counts[base] = counts.get(base, 0) + 1
            name = f"{base}_{counts[base]}"
        node.name = name
        taken.add(name)


def _next_index(model: ir.Model) -> int:
    """Plugins are numbered through a model; one that came from the network API has some already."""
    used = [node.attributes["plugin"].as_int() for node in model.graph.all_nodes() if entry_of(node) is not None]
    return max(used, default=-1) + 1
