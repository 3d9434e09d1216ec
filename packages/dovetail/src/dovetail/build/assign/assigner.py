"""Giving nodes to providers: every provider is asked, the rules of placing decide, and partitions are compiled.

A provider that fails while it is asked is named, and so are the nodes that one took and cannot compile; these go to
the next one, unless the build is strict.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import onnx_ir as ir

from dovetail.build.assign.borders import Border
from dovetail.build.assign.layers import ASSIGNED_KEY, NodeLayer, body_graphs, is_constant_node
from dovetail.build.assign.partitions import BuiltGroup, LayerFault, PartitionCompiler, describe_fault
from dovetail.build.lower.owners import Owner, check_kinds
from dovetail.build.services import BuildServices
from dovetail.build.shapes import ProfileShapes
from dovetail.errors import DovetailError, ProviderError, UnsupportedOpError
from dovetail.loggers import ILogger, Severity
from dovetail.network.plugins import PluginEntry, entry_of
from dovetail.plan.limits import MAX_NAME_CHARS
from dovetail.plan.manifest import NoteRecord, RefusalRecord
from dovetail.plugin.interfaces import PREFERS_DEVICE, PREFERS_HOST
from dovetail.provider.interfaces import BuiltPartition, Claim, Provider, StepKind
from dovetail.provider.partition import find_partitions
from dovetail.provider.placement import CONSTANT, OUTSIDE, PlacedNode, find_annotation, place

__all__ = ["Assigner", "Group"]

ANNOTATION_KEY: Final = "dovetail.layer_provider"
_PLUGIN: Final = "(plugin)"
_CONTROL: Final = "(control)"
_FREE_OPS: Final = frozenset(("Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Cast", "Shape", "Size"))
"""Ops that cost less as a single kernel than the border of a partition does."""
_CHEAP: Final = "a partition of its own would cost more than it saves"
_NOT_IN_PLACE: Final = "it makes new memory for a result that is to get the memory of an input"
_SMALL_ELEMENTS: Final = 64


@dataclass(frozen=True, kw_only=True)
class Group:
    """Nodes that become one step, and the compiled partition when they are several under one provider."""

    provider: str
    layers: Sequence[NodeLayer]
    border: Border | None = None
    builds: Sequence[BuiltPartition] = ()
    """The compiled partition: one for all profiles, or one for each."""

    def find_built(self, profile: int) -> BuiltPartition | None:
        """The compiled partition for a profile."""
        return self.builds[profile if len(self.builds) > 1 else 0] if self.builds else None


@dataclass(kw_only=True)
class Assigner:
    """Decides for a model, once for all profiles."""

    model: ir.Model
    providers: Sequence[Provider]
    """In order of preference; the last one is the host's, which runs plugins and control flow."""
    logger: ILogger
    services: BuildServices
    """What providers build with."""
    order: Sequence[str] = ()
    """The names of the providers in the order they get nodes, where that is not the order of ``providers``."""
    strict: bool = False
    is_host_asked: bool = True
    """Whether whoever builds named the host's provider, or none."""
    keep: frozenset[str] = frozenset()
    """Names of weights that may be replaced in a loaded engine."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    _banned: dict[tuple[str, ir.Node], str] = field(default_factory=dict, init=False)
    notes: list[NoteRecord] = field(default_factory=list, init=False)
    """What went otherwise than asked, for the plan."""
    _told: set[str] = field(default_factory=set, init=False)
    _reasons: dict[str, NoteRecord] = field(default_factory=dict, init=False)
    """Layer -> why it is not with the first provider of the order."""
    _refusals: dict[str, dict[str, str]] = field(default_factory=dict, init=False)
    """Layer -> provider -> why it did not get it."""
    _groups: dict[ir.Graph, list[Group]] = field(default_factory=dict, init=False)
    _compiler: PartitionCompiler = field(init=False)

    def __post_init__(self) -> None:
        self._compiler = PartitionCompiler(model=self.model, services=self.services)

    def use_profiles(self, profiles: Sequence[ProfileShapes]) -> None:
        """Have partitions compiled for the shapes of these profiles."""
        self._compiler.profiles = profiles

    @property
    def host(self) -> Provider:
        """The provider of plugins, control flow, reformats and copies."""
        return self.providers[-1]

    def groups(self, graph: ir.Graph) -> list[Group]:
        """The groups of a graph in the order they run; those of bodies are decided with it."""
        if graph not in self._groups:
            while (groups := self._try_groups(graph)) is None:
                pass
            self._compiler.forget()
            self._groups[graph] = groups
            for group in groups:
                if group.provider == _CONTROL:
                    for body in body_graphs(group.layers[0].node):
                        self.groups(body)
        return self._groups[graph]

    def serves(self, node: ir.Node, opset: int) -> bool:
        """Whether the provider that has a node would take it at another opset of ONNX too."""
        name = node.metadata_props.get(ASSIGNED_KEY)
        if name is None or entry_of(node) is not None:
            return True
        layer = NodeLayer(node, name, {**self.model.opset_imports, "": opset})
        return self.ask(layer).taken

    def ask(self, layer: NodeLayer) -> Claim:
        """What the provider of a layer says to it."""
        return self._ask(self.provider(layer.provider), [layer])[0]

    def tag_nodes(self, graph: ir.Graph) -> None:
        """Note on every node, bodies included, which provider it goes to, so that passes and later rounds know."""
        layers = self._layers(graph)
        for layer, (provider, _) in zip(layers, self._place(layers), strict=True):
            if provider == _CONTROL:
                for body in body_graphs(layer.node):
                    self.tag_nodes(body)
            elif layer.entry is None:
                layer.node.metadata_props[ASSIGNED_KEY] = provider

    def _try_groups(self, graph: ir.Graph) -> list[Group] | None:
        layers = self._layers(graph)
        owners = self._place(layers)
        producers = [[s for s in sources if s >= 0] for sources in _sources(layers)]
        partitions = find_partitions(owners, producers, frozenset(owner for owner in owners if owner.is_compiled))
        if len(partitions) > 1 and self._ban_cheap(layers, partitions):
            return None
        groups: list[Group] = []
        for (name, kind), nodes in partitions:
            named = [NodeLayer(layers[n].node, self._step_provider(name), layers[n].opsets) for n in nodes]
            if kind == StepKind.NODE:
                groups.append(Group(provider=name, layers=named))
                continue
            compiled = self._compile(name, named)
            if compiled is None or self._ban_updates(name, compiled):
                return None
            if compiled.builds:  # else nobody reads what it makes
                groups.append(Group(provider=name, layers=named, border=compiled.border, builds=compiled.builds))
        return groups

    def _ban_cheap(self, layers: Sequence[NodeLayer], partitions: Sequence[tuple[Owner, Sequence[int]]]) -> bool:
        """Give partitions of nothing but free ops to the next provider; on a device copies would cost more."""
        cheap = [
            (owner.provider, nodes)
            for owner, nodes in partitions
            if owner.is_compiled and self.provider(owner.provider).memory.is_host and _is_free(layers, nodes)
        ]
        for name, nodes in cheap:
            self._ban(name, [layers[n].node for n in nodes], _CHEAP)
        return bool(cheap)

    def _ban_updates(self, name: str, compiled: BuiltGroup) -> bool:
        """Give nodes that are to update an input in its memory to the next provider, where this one would not."""
        if not self.provider(name).memory.is_host:
            return False
        missed = compiled.find_missed_updates(self.services.aliases)
        self._ban(name, missed, _NOT_IN_PLACE)
        return bool(missed)

    def _compile(self, name: str, layers: Sequence[NodeLayer]) -> BuiltGroup | None:
        """A partition; None when it cannot be compiled, and others must have the nodes at fault."""
        provider = self.provider(name)
        try:
            return self._compiler.compile(provider, layers)
        except DovetailError as error:
            self.services.refuse_stop(error)
            faults = self._compiler.find_faults(provider, layers, error)
            self._report_faults(name, faults)
            for fault in faults:
                self._ban(name, [layer.node for layer in fault.nodes], f"it could not be compiled: {fault.error.what}")
            return None

    def _report_faults(self, name: str, faults: Sequence[LayerFault]) -> None:
        count = sum(len(fault.nodes) for fault in faults)
        rows = "\n".join(f"  {describe_fault(fault)}" for fault in faults)
        text = f"provider '{name}' cannot compile {count} node(s) that it took:\n{rows}"
        self._report(text, ProviderError(text), provider=name)

    def _step_provider(self, name: str) -> str:
        return self.host.id if name in (_PLUGIN, _CONTROL) else name

    def provider(self, name: str) -> Provider:
        """One of the providers of this build, with its options."""
        return next(provider for provider in self.providers if provider.id == name)

    def plugin_provider(self, node: ir.Node) -> Provider:
        """The provider in whose memory and on whose stream a plugin layer runs."""
        layer = NodeLayer(node, self.host.name, self.model.opset_imports)
        name = _PLUGIN if layer.entry is None else self._plugin_provider(layer, layer.entry)
        return self.provider(self._step_provider(name))

    def _ban(self, provider: str, nodes: Sequence[ir.Node], reason: str) -> None:
        for node in nodes:
            self._banned[provider, node] = reason
            node.metadata_props.pop(ASSIGNED_KEY, None)

    def _report(self, text: str, error: DovetailError | None = None, *, provider: str = "") -> None:
        if self.strict:
            raise error or ProviderError(text)
        if text not in self._told:
            self._told.add(text)
            self.notes.append(_make_note(text, provider))
            self.logger.log(Severity.WARNING, text)

    # asking

    def _layers(self, graph: ir.Graph) -> list[NodeLayer]:
        opsets = self.model.opset_imports
        return [NodeLayer(node, self.host.id, opsets) for node in graph if not is_constant_node(node)]

    def _place(self, layers: Sequence[NodeLayer]) -> list[Owner]:
        """Who has each layer; names stand for plugins and for control flow that is run from here."""
        plain = [layer for layer in layers if layer.entry is None]
        claims = {provider.id: self._ask(provider, plain) for provider in self.providers}
        nodes = [_placed(layer, sources) for layer, sources in zip(plain, _sources(plain), strict=True)]
        found = place(
            nodes,
            claims,
            self.order or [provider.id for provider in self.providers],
            annotations=self.annotations,
            budgets={provider.id: provider.budget_bytes for provider in self.providers},
            devices=[p.id for p in self.providers if not p.memory.is_host and not p.follows_shapes],
            host=self.host.id,
        )
        for index in found.unmet:
            self._report(f"layer '{plain[index].name}': {found.reasons[index]}")
        self._check(plain, found.providers, claims)
        self._note_reasons(plain, found.providers, found.reasons)
        for layer, refused in zip(plain, found.refusals, strict=True):
            self._refusals[layer.name] = dict(refused)
        self._report_left(plain, found.providers)
        owners = {
            layer.node: self._owner(layer, name, claims[name][index])
            for index, (layer, name) in enumerate(zip(plain, found.providers, strict=True))
            if name is not None
        }
        return [
            owners[layer.node] if layer.entry is None else Owner(self._plugin_provider(layer, layer.entry))
            for layer in layers
        ]

    @property
    def all_notes(self) -> list[NoteRecord]:
        """What went otherwise than asked, and for each layer that is not with the first provider the reason."""
        return [*self.notes, *self._reasons.values()]

    def list_refusals(self, layers: Collection[str]) -> list[RefusalRecord]:
        """Why providers did not get these layers, each reason of a provider once."""
        grouped: dict[tuple[str, str], list[str]] = {}
        for layer, refused in self._refusals.items():
            for provider, reason in refused.items() if layer in layers else ():
                grouped.setdefault((provider, _clean(reason)), []).append(_clean(layer))
        return [RefusalRecord(provider=p, reason=r, layers=names) for (p, r), names in grouped.items()]

    def _note_reasons(self, layers: Sequence[NodeLayer], chosen: Sequence[str | None], reasons: Sequence[str]) -> None:
        """Keep why layers are where they are; a later round says only that an earlier one decided."""
        for layer, provider, reason in zip(layers, chosen, reasons, strict=True):
            known = self._reasons.get(layer.name)
            if not reason or provider is None:
                self._reasons.pop(layer.name, None)
            elif known is None or known.provider != provider:
                self._reasons[layer.name] = _make_note(reason, provider, layer.name)

    def _report_left(self, layers: Sequence[NodeLayer], chosen: Sequence[str | None]) -> None:
        """Say which nodes the host runs although nobody asked for it."""
        if self.is_host_asked:
            return
        left = [
            (layer, self._reasons[layer.name].text if layer.name in self._reasons else "nobody else takes it")
            for layer, name in zip(layers, chosen, strict=True)
            if name == self.host.id and not layer.is_control
        ]
        rows = [f"  '{layer.name}' ({layer.op}): {reason}" for layer, reason in left if _CHEAP not in reason]
        if rows:
            text = f"{len(rows)} node(s) go to '{self.host.id}', which was not asked for:\n" + "\n".join(rows)
            fix = f"add '{self.host.id}' to the providers, or replace the nodes"
            self._report(text, UnsupportedOpError(text, fix=fix), provider=self.host.id)

    def _plugin_provider(self, layer: NodeLayer, entry: PluginEntry) -> str:
        """Choose the provider of a plugin layer.

        Raises:
            PluginError: The plugin would run on the host, and its library contains CUDA code.
        """
        provider = self._choose_plugin_provider(layer, entry)
        if provider == _PLUGIN:
            entry.handle.require_host(layer.name)
        return provider

    def _choose_plugin_provider(self, layer: NodeLayer, entry: PluginEntry) -> str:
        """The host's, unless an annotation or the plugin names a device: it gets addresses and the stream there."""
        annotated = find_annotation(layer.name, layer.node.metadata_props.get(ANNOTATION_KEY), self.annotations)
        wanted = entry.handle.preferred_memory if annotated is None else annotated
        if wanted in ("", PREFERS_HOST, self.host.id):
            return _PLUGIN
        devices = [provider.id for provider in self.providers if not provider.memory.is_host]
        if annotated is None and wanted == PREFERS_DEVICE:
            return devices[0] if devices else _PLUGIN
        if wanted in devices:
            return wanted
        if not any(provider.id == wanted for provider in self.providers):
            who = "is annotated" if annotated is not None else "asks"
            self._report(f"plugin layer '{layer.name}' {who} for {wanted}, which is not among the providers")
        return _PLUGIN

    def _owner(self, layer: NodeLayer, name: str, claim: Claim) -> Owner:
        if layer.is_control and name == self.host.id:
            return Owner(_CONTROL)
        return Owner(name, claim.step_kind or self.provider(name).step_kind)

    def _ask(self, provider: Provider, layers: Sequence[NodeLayer]) -> list[Claim]:
        views = [replace(layer, provider=provider.id) for layer in layers]
        try:
            claims = list(provider.get_capability(views))
            if len(claims) != len(views):
                raise ProviderError(
                    "get_capability gave another number of claims", expected=len(views), got=len(claims)
                )
            check_kinds(provider, claims)
        except Exception as error:  # noqa: BLE001 - whatever a provider does wrong, the others go on
            text = f"provider '{provider.id}' failed when it was asked what it takes: {error}"
            self._report(text, ProviderError(text), provider=provider.id)
            claims = [Claim(taken=False, reason=f"it failed when it was asked: {error}")] * len(views)
        return [self._unless_banned(provider.id, v, c) for v, c in zip(views, claims, strict=True)]

    def _unless_banned(self, provider: str, layer: NodeLayer, claim: Claim) -> Claim:
        reason = self._banned.get((provider, layer.node))
        if reason is not None:
            return Claim(taken=False, reason=reason)
        if layer.is_control and provider == self.host.id:
            return Claim(taken=True)
        return claim

    def _check(
        self,
        layers: Sequence[NodeLayer],
        names: Sequence[str | None],
        claims: Mapping[str, Sequence[Claim]],
    ) -> None:
        """One error names every node that nobody takes."""
        rows = []
        for index, layer in enumerate(layers):
            if names[index] is None:
                reasons = "; ".join(f"{name}: {row[index].reason}" for name, row in claims.items())
                rows.append(f"  '{layer.name}' ({layer.op}): {reasons}")
        if rows:
            raise UnsupportedOpError(
                f"{len(rows)} node(s) that no provider takes:\n" + "\n".join(rows),
                fix="write a plugin for the operator, or replace the node",
            )


def _make_note(text: str, provider: str = "", layer: str = "") -> NoteRecord:
    """A note whose texts a plan can store."""
    return NoteRecord(text=_clean(text), provider=_clean(provider), layer=_clean(layer))


def _clean(text: str) -> str:
    return text.replace("\0", "?")[:MAX_NAME_CHARS]


def _placed(layer: NodeLayer, sources: Sequence[int]) -> PlacedNode:
    return PlacedNode(
        name=layer.name,
        op=layer.op,
        domain=layer.domain,
        inputs=sources,
        is_small_integer=all(_is_small_integer(value) for value in layer.node.outputs),
        annotation=layer.node.metadata_props.get(ANNOTATION_KEY),
        assigned=layer.node.metadata_props.get(ASSIGNED_KEY),
    )


def _is_small_integer(value: ir.Value) -> bool:
    if value.dtype is None or not (value.dtype.is_integer() or value.dtype == ir.DataType.BOOL):
        return False
    if value.shape is None or not value.shape.is_static():
        return False
    count = 1
    for dim in value.shape.numpy():
        count *= dim
    return count <= _SMALL_ELEMENTS


def _sources(layers: Sequence[NodeLayer]) -> list[list[int]]:
    """For each layer, who makes each of its inputs, and what its bodies read from outside."""
    number = {layer.node: index for index, layer in enumerate(layers)}
    return [[_source(value, number) for value in _reads(layer.node)] for layer in layers]


def _source(value: ir.Value | None, number: Mapping[ir.Node, int]) -> int:
    if value is None:
        return OUTSIDE
    producer = value.producer()
    if producer is None:
        return CONSTANT if value.const_value is not None else OUTSIDE
    return CONSTANT if is_constant_node(producer) else number.get(producer, OUTSIDE)


def _reads(node: ir.Node) -> Iterator[ir.Value | None]:
    yield from node.inputs
    for graph in body_graphs(node):
        for inner in graph.all_nodes():
            yield from inner.inputs
        yield from graph.outputs


def _is_free(layers: Sequence[NodeLayer], nodes: Sequence[int]) -> bool:
    return len(nodes) <= 2 and all(layers[n].domain == "" and layers[n].op in _FREE_OPS for n in nodes)
