"""The build itself: from a model to a manifest and its blobs, profile by profile.

Effects on plugins happen in the contract's order; everything decided is written into the manifest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import onnx_ir as ir

from dovetail._unset_dims import tell_unset
from dovetail._version import __version__
from dovetail.build.assign.assigner import Assigner
from dovetail.build.assign.provider_passes import rewrite_for_providers
from dovetail.build.calibrate.scales import find_scales
from dovetail.build.config import BuilderConfig, BuilderFlag, MemoryPoolType, PreviewFeature
from dovetail.build.formats.network_formats import choose_formats
from dovetail.build.formats.ports import TypeRule, find_aliases, infer_plugin_dims, make_plugin_layer
from dovetail.build.idle_settings import PRECISION_FLAGS, find_idle_types, tell_idle
from dovetail.build.lower.blobs import BlobTable
from dovetail.build.lower.built_records import BuiltStore
from dovetail.build.lower.io_memory import find_io_memory
from dovetail.build.lower.lowering import Lowering
from dovetail.build.lower.program_context import ChosenPlugin, ProgramContext
from dovetail.build.lower.tensor_records import TensorPlaces, find_shape_inputs, input_records, output_records
from dovetail.build.profile import OptimizationProfile
from dovetail.build.progress import Phases
from dovetail.build.services import BuildServices
from dovetail.build.shapes import ProfileShapes, find_unset_symbols, known_dims, ranges_from_profile, static_symbols
from dovetail.build.tune.plugins import Choice, PluginTuner, TunedLayer
from dovetail.build.tune.session import CacheSession
from dovetail.build.tune.trial import PluginLayer
from dovetail.build.tune.tuner import CandidateTuner, TunerOptions
from dovetail.errors import ModelError, UsageError
from dovetail.expr import Expr, SizeTensor, Symbol, symbols_of
from dovetail.loggers import ILogger
from dovetail.network.inference.shapes import ShapeInference, size_symbols
from dovetail.network.plugins import PluginEntry, entry_of
from dovetail.network.value_types import has_no_shape
from dovetail.plan.container import Blob
from dovetail.plan.limits import MAX_NAME_CHARS
from dovetail.plan.manifest import (
    FORMAT_VERSION,
    DeviceRecord,
    FieldRecord,
    LayerRecord,
    LibraryRecord,
    Manifest,
    PluginRecord,
    ProfileRecord,
    ProgramRecord,
    RefitRecord,
)
from dovetail.plan.walk import walk_steps
from dovetail.plugin.fields import encode_fields
from dovetail.plugin.handle import PluginHandle
from dovetail.provider.interfaces import Provider
from dovetail.provider.loader import get_factory
from dovetail.provider.options import Providers
from dovetail.runtime.bind.instance import ProgramInstance
from dovetail.runtime.bind.template import ProgramTemplate
from dovetail.types import DataType

__all__ = ["BuildRequest", "BuiltPlan", "build_plan", "reference_program", "tuner_options"]


@dataclass(kw_only=True)
class BuildRequest:
    """What to build and how."""

    model: ir.Model
    config: BuilderConfig
    logger: ILogger
    name: str = ""
    providers: Sequence[str] = ("cpu",)
    """Back ends in order of preference; ``cpu`` runs what no other takes."""
    order: Sequence[str] = ()
    """In which order providers get nodes, where ``cpu`` need not be the last; empty for the order of ``providers``."""
    is_open: bool = False
    strongly_typed: bool = True
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Explicit dynamic ranges by tensor name."""
    libraries: Sequence[tuple[str, bytes]] = ()
    """Plugin libraries to carry: name and packed contents."""
    refittable: frozenset[str] = frozenset()
    """Weights that can be replaced later, by name."""
    excluded_weights: Mapping[str, str] = field(default_factory=dict)
    """Weights that cannot, with the reason."""
    is_reference: bool = False
    """Whether plugins are offered only the network's own types, row by row."""
    num_threads: int = 0
    """How many threads providers may compile in; 0 for one a core."""


@dataclass(frozen=True)
class BuiltPlan:
    """The parts of a plan file."""

    manifest: Manifest
    blobs: list[Blob]


def build_plan(request: BuildRequest, phases: Phases) -> BuiltPlan:
    """Build; every object made on the way is destroyed before this returns."""
    planner = _Planner(request, phases)
    try:
        return planner.build()
    finally:
        planner.close()


@contextmanager
def reference_program(request: BuildRequest) -> Iterator[ProgramInstance]:
    """A program of the network that can run at once, with the plugins it was built with: no creator is asked."""
    planner = _Planner(request, Phases())
    try:
        yield planner.make_instance(planner.build().manifest)
    finally:
        planner.close()


class _Planner:
    def __init__(self, request: BuildRequest, phases: Phases) -> None:
        self._request = request
        self._config = request.config
        self._phases = phases
        self._model = request.model
        self._graph = request.model.graph
        self._all_providers = Providers(request.config.provider_options)
        self._providers = [self._all_providers[name] for name in _with_host(request.providers)]
        self._session = CacheSession(self._config, request.logger)
        self._tuner = CandidateTuner(tuner_options(self._config), self._session, request.logger, phases)
        self._plugin_tuner = PluginTuner(self._tuner)
        self._services = BuildServices(
            request.config,
            request.logger,
            self._tuner,
            keep=request.refittable,
            is_open=request.is_open,
            num_threads=request.num_threads,
            phases=phases,
        )
        self._assigner = Assigner(
            model=self._model,
            services=self._services,
            providers=self._providers,
            order=_with_last(request.order),
            logger=request.logger,
            strict=request.config.strict,
            is_host_asked="cpu" in request.providers,
            keep=request.refittable,
            annotations=request.config.layer_providers,
        )
        self._blobs = BlobTable()
        self._store = BuiltStore(model=self._model, blobs=self._blobs, keep=request.refittable)
        self._owned: list[PluginHandle] = []
        self._finals: dict[int, PluginHandle] = {}
        """The object that each plugin record of a program was made from, by identity of the record."""
        self._tables: list[LayerRecord] = []
        self._aliases: dict[str, str] = {}
        self._io_memory: dict[str, str] | None = None
        """Where inputs and outputs lie, by name; the same for all profiles."""
        self._narrow_types: frozenset[DataType] = frozenset()
        """Types other than the network's own that a plugin layer accepted."""
        self._known: dict[str, Expr] | None = None
        """Open dims whose size every profile makes known."""
        self._plugin_symbols: frozenset[str] = frozenset()
        """What the exact shapes of plugin outputs depend on, which onnx-ir's dims cannot always carry."""

    def close(self) -> None:
        self._services.close()
        self._tuner.close()
        self._session.close()
        for handle in reversed(self._owned):
            handle.destroy(self._request.logger)

    def _own(self, handle: PluginHandle) -> PluginHandle:
        self._owned.append(handle)
        return handle

    def build(self) -> BuiltPlan:
        """All phases."""
        self._check_graph()
        with self._phases.phase("Analyse network", steps=3) as phase:
            self._static = static_symbols(self._graph.inputs)
            phase.step()
            self._infer_shapes()
            is_rewritten = not self._request.is_reference and rewrite_for_providers(
                self._assigner, off=self._config.passes_off
            )
            if is_rewritten:
                self._infer_shapes()
            phase.step()
            self._check_dynamic()
            self._graph_handles = {node: self._own(entry.handle.clone()) for node, entry, _ in self._plugin_nodes()}
            phase.step()
        profiles: Sequence[OptimizationProfile | None] = self._config.profiles or [None]
        self._assigner.use_profiles([self._profile_shapes(profile) for profile in profiles])
        with self._phases.phase("Build programs", steps=len(profiles)) as phase:
            programs = []
            for index, profile in enumerate(profiles):
                programs.append(self._build_program(index, profile))
                phase.step()
        self._tell_idle_types()
        with self._phases.phase("Write plan", steps=1) as phase:
            plan = self._assemble(programs)
            phase.step()
        return plan

    def _infer_shapes(self) -> None:
        self._inference = ShapeInference(self._model.opset_imports)
        self._inference.infer_graph(self._graph)

    def make_instance(self, manifest: Manifest) -> ProgramInstance:
        """The first program over the plugin objects of this build; they live until the planner is closed."""
        template = ProgramTemplate(manifest.programs[0], self._blobs.array, self._all_providers)
        template.create_plugins(lambda _, record: self._finals[id(record)])
        instance = template.make_instance(manifest, 0, self._plugin_tuner.find_context(self._assigner.host))
        for step in instance.all_plugin_steps():
            self._own(step.handle)
        return instance

    # checks

    def _check_graph(self) -> None:
        if not self._graph.outputs:
            raise ModelError("the network has no outputs", fix="mark at least one tensor with mark_output")
        names = [value.name for value in (*self._graph.inputs, *self._graph.outputs)]
        doubled = sorted({name for name in names if name and names.count(name) > 1})
        if doubled:
            raise ModelError(
                f"a tensor is both input and output, or two have one name: {', '.join(doubled)}",
                fix="add an identity layer and mark its output",
            )
        self._check_names()

    def _check_names(self) -> None:
        """Refuse the names that a plan must not have before time is spent on a plan that cannot be loaded."""
        names = [value.name for value in self._graph.inputs]
        names += [name for node in self._graph.all_nodes() for name in (node.name, *(v.name for v in node.outputs))]
        bad = [name for name in names if name and ("\0" in name or len(name) > MAX_NAME_CHARS)]
        if bad:
            raise ModelError(
                f"a name has a NUL character or over {MAX_NAME_CHARS} characters",
                got=ascii(bad[0][:60]),
                fix="rename it",
            )

    def _check_dynamic(self) -> None:
        shaped = [value for value in self._graph.inputs if not has_no_shape(value)]
        dynamic = [value.name for value in shaped if value.shape is None or not value.shape.is_static()]
        if dynamic and not self._request.is_open and not self._config.profiles:
            raise UsageError(
                f"input(s) {', '.join(map(str, dynamic))} have dynamic dimensions and there is no optimization profile",
                fix="add one: profile = builder.create_optimization_profile(); profile.set_shape(...); "
                "config.add_optimization_profile(profile)",
            )

    def _plugin_nodes(self) -> list[tuple[ir.Node, PluginEntry, bool]]:
        found = []
        main = set(self._graph)
        for node in self._graph.all_nodes():
            entry = entry_of(node)
            if entry is not None:
                found.append((node, entry, node not in main))
        return found

    # one profile

    def _build_program(self, index: int, profile: OptimizationProfile | None) -> ProgramRecord:
        context = self._make_context(index, profile)
        nodes = self._plugin_nodes()
        self._assigner.groups(self._graph)  # nobody waits for tuning to hear of an unknown op
        layers: dict[ir.Node, PluginLayer] = {}
        tuned: dict[ir.Node, TunedLayer] = {}
        with self._phases.phase(f"Tune profile {index}", steps=max(len(nodes), 1)) as phase:
            for node, entry, in_body in nodes:
                layers[node] = self._prepare_layer(node, entry, context, in_body=in_body)
                tuned[node] = self._plugin_tuner.tune(layers[node])
                self._narrow_types |= _narrow_types(layers[node], tuned[node])
                phase.step()
        if profile is None and self._config.tells_unset_dims:
            compared = [node for node in tuned if len(tuned[node].table) > 1]
            unset = find_unset_symbols(self._graph.inputs, self._symbols_of(compared, context))
            tell_unset(unset, self._request.logger, strict=self._config.strict)
        choices = choose_formats(self._graph, context, tuned, layers, self._tuner)
        for node, _, _ in nodes:
            context.chosen[node] = self._finish(node, layers[node], tuned[node], choices[node], index)
        if self._io_memory is None:
            shape_inputs = find_shape_inputs(self._graph, self._inference, self._static, self._plugin_symbols)
            self._io_memory = find_io_memory(self._graph, context, self._config.io_memory, shape_inputs)
        context.io_memory = self._io_memory
        lowering = Lowering(context, self._graph)
        program = lowering.lower()
        self._aliases.update({o.name or "": i.name or "" for o, i in lowering.aliases.items()})
        return program

    def _tell_idle_types(self) -> None:
        """Tell which of the allowed types no plugin layer can use; INT8 without a scale is told by the calibration."""
        if self._request.strongly_typed or self._request.is_reference:
            return
        has_scales = bool(find_scales(self._graph, self._request.ranges))
        used = self._narrow_types if has_scales else self._narrow_types | {DataType.INT8}
        tell_idle(find_idle_types(self._config, used), self._request.logger, strict=self._config.strict)

    def _symbols_of(self, nodes: Iterable[ir.Node], context: ProgramContext) -> frozenset[str]:
        """What the shapes of these layers depend on."""
        values = [value for node in nodes for value in (*node.inputs, *node.outputs) if value is not None]
        dims = [dim for value in values for dim in context.dims(value) or () if dim is not None]
        return frozenset().union(*(symbols_of(dim) for dim in dims))

    def _profile_shapes(self, profile: OptimizationProfile | None) -> ProfileShapes:
        """What providers that compile partitions are told of shapes; plugins say theirs only later."""
        ranges = ranges_from_profile(self._graph.inputs, profile)
        for node, _, _ in self._plugin_nodes():
            ranges.add_sizes(node)
        return ProfileShapes(ranges, known_dims(self._inference.assumed_dims, ranges))

    def _make_context(self, index: int, profile: OptimizationProfile | None) -> ProgramContext:
        ranges = ranges_from_profile(self._graph.inputs, profile)
        known = known_dims(self._inference.assumed_dims, ranges)
        self._known = known if self._known is None else {name: self._known[name] for name in self._known.keys() & known}
        return ProgramContext(
            model=self._model,
            assigner=self._assigner,
            blobs=self._blobs,
            store=self._store,
            static=self._static,
            ranges=ranges,
            chosen={},
            scales=find_scales(self._graph, self._request.ranges),
            is_open=self._request.is_open,
            plugin_dims={},
            known=known,
            profile=index,
        )

    def _prepare_layer(
        self, node: ir.Node, entry: PluginEntry, context: ProgramContext, *, in_body: bool
    ) -> PluginLayer:
        graph_handle = self._graph_handles[node]
        dims = infer_plugin_dims(node, entry, graph_handle, self._inference, context)
        sizes = {size.output_index: Symbol(size.name) for size in size_symbols(node)}
        self._plugin_symbols |= frozenset().union(*(symbols_of(dim) for shape in dims for dim in shape))
        for value, shape in zip(node.outputs, dims, strict=True):
            context.plugin_dims[value] = [sizes[d.output_index] if isinstance(d, SizeTensor) else d for d in shape]
        context.ranges.add_sizes(node)
        enabled = self._config.get_preview_feature(PreviewFeature.ALIASED_PLUGIN_IO_10_03)
        aliases = find_aliases(graph_handle, len(node.outputs), entry.num_inputs, enabled=enabled)
        handle = self._own(graph_handle.clone())
        rule = _type_rule(self._request)
        return make_plugin_layer(node, entry, handle, context, rule, aliases=aliases, in_body=in_body)

    def _finish(
        self, node: ir.Node, layer: PluginLayer, tuned: TunedLayer, choice: Choice, profile: int
    ) -> ChosenPlugin:
        """The final object: attached, configured with what was chosen, asked for what the plan stores."""
        final = self._own(layer.handle.attach_to_context(self._plugin_tuner.find_context(layer.provider)))
        descs = [port.describe(layout) for port, layout in zip(layer.ports, choice.combination, strict=True)]
        inputs, outputs = descs[: layer.num_inputs], descs[layer.num_inputs :]
        final.configure(inputs, outputs)
        final.set_tactic(choice.tactic)
        workspace_bytes = self._plugin_tuner.ask_workspace(layer, final, choice.combination)
        metadata = final.metadata_string
        self._tables.append(_layer_record(layer, tuned, choice, profile, metadata))
        record = _plugin_record(final, metadata)
        self._finals[id(record)] = final
        return ChosenPlugin(
            handle=self._graph_handles[node],
            combination=choice.combination,
            tactic=choice.tactic,
            workspace_bytes=workspace_bytes,
            asks_workspace=not layer.is_bounded,
            record=record,
            aliases=layer.aliases,
        )

    # the manifest

    def _assemble(self, programs: list[ProgramRecord]) -> BuiltPlan:
        request = self._request
        self._programs = programs
        libraries = []
        for name, payload in request.libraries:
            blob = self._blobs.add_array(f"library:{name}", _bytes_array(payload), kind="library")
            libraries.append(LibraryRecord(name=name, blob=blob))
        refit = self._refit_record()
        blobs, records = self._blobs.finish(strip=self._find_stripped(refit))
        shape_inputs = find_shape_inputs(self._graph, self._inference, self._static, self._plugin_symbols)
        places = TensorPlaces(memory=self._io_memory or {}, has_devices=self._has_devices(programs))
        manifest = Manifest(
            format_version=FORMAT_VERSION,
            producer=f"dovetail {__version__}",
            name=request.name or self._graph.name or "network",
            open=request.is_open,
            strongly_typed=request.strongly_typed,
            inputs=input_records(self._graph, self._inference, shape_inputs, places),
            outputs=output_records(
                self._graph, self._inference, self._static, self._aliases, self._known or {}, programs, places
            ),
            profiles=[_profile_record(profile) for profile in self._config.profiles],
            programs=programs,
            blobs=records,
            libraries=libraries,
            devices=self._device_records(),
            refit=refit,
            packed=self._store.packed,
            tuning=[*self._tables, *self._services.tables.records],
            build={"profiling_verbosity": self._config.profiling_verbosity.name},
            notes=self._assigner.all_notes,
        )
        return BuiltPlan(manifest, blobs)

    def _find_stripped(self, refit: RefitRecord | None) -> frozenset[str]:
        """The blobs to leave out: weights that can be given back, and what is packed from them."""
        if refit is None or not self._config.get_flag(BuilderFlag.STRIP_PLAN):
            return frozenset()
        given = frozenset(refit.weights.values())
        packed = {blob for blob, record in self._store.packed.items() if not given.isdisjoint(record.sources.values())}
        return given | packed

    def _has_devices(self, programs: Sequence[ProgramRecord]) -> bool:
        used = {step.provider for program in programs for step in walk_steps(program)}
        return any(provider.id in used and not provider.memory.is_host for provider in self._providers)

    def _refit_record(self) -> RefitRecord | None:
        if not self._request.refittable:
            return None
        weights = {name: name for name in sorted(self._request.refittable) if name in self._blobs.arrays}
        excluded = dict(self._request.excluded_weights)
        for name in sorted(self._request.refittable - weights.keys()):
            excluded.setdefault(name, "no step of the plan uses it")
        return RefitRecord(weights=weights, excluded=excluded)

    def _device_records(self) -> list[DeviceRecord]:
        """The providers that have a step, and the host's first: it runs copies and control flow."""
        used = {step.provider for program in self._programs for step in walk_steps(program)}
        kept = [p for p in reversed(self._providers) if p.id in used or p is self._providers[-1]]
        return [_device_record(provider) for provider in kept]


def _device_record(provider: Provider) -> DeviceRecord:
    device = provider.device
    return DeviceRecord(
        provider=provider.id,
        name=device.name,
        fingerprint=device.fingerprint,
        version=get_factory(provider.name).version,
    )


def _with_last(order: Sequence[str]) -> list[str]:
    """An order in which ``cpu`` gets what is left, unless it stands elsewhere; no order stays none."""
    return [*order, "cpu"] if order and "cpu" not in order else list(order)


def _with_host(names: Sequence[str]) -> list[str]:
    return [*(name for name in dict.fromkeys(names) if name != "cpu"), "cpu"]


def _bytes_array(payload: bytes) -> Any:
    return np.frombuffer(payload, np.uint8)


def tuner_options(config: BuilderConfig) -> TunerOptions:
    """What a configuration allows the tuner."""
    return TunerOptions(
        timeout_s=config.tactic_timeout_s,
        workspace_bytes=config.get_memory_pool_limit(MemoryPoolType.WORKSPACE),
        max_tactics=config.max_num_tactics,
        error_on_cache_miss=config.get_flag(BuilderFlag.ERROR_ON_TIMING_CACHE_MISS),
        strict=config.strict,
    )


def _type_rule(request: BuildRequest) -> TypeRule:
    extra = tuple(dtype for flag, dtype in PRECISION_FLAGS.items() if request.config.get_flag(flag))
    return TypeRule(
        strongly_typed=request.strongly_typed,
        extra=() if request.strongly_typed else extra,
        linear_only=request.is_reference,
    )


def _narrow_types(layer: PluginLayer, tuned: TunedLayer) -> frozenset[DataType]:
    """The types that a layer accepted besides those of its tensors, which are the first that ports propose."""
    combinations = [choice.combination for choice in tuned.choices]
    pairs = [pair for combination in combinations for pair in zip(layer.ports, combination, strict=True)]
    return frozenset(layout.dtype for port, layout in pairs if layout.dtype != port.layouts[0].dtype)


def _profile_record(profile: OptimizationProfile) -> ProfileRecord:
    return ProfileRecord(
        shapes={name: _lists(bounds) for name, bounds in profile.shapes.items()},
        values={name: _lists(bounds) for name, bounds in profile.values.items()},
    )


def _lists(bounds: tuple[tuple[int, ...], ...]) -> tuple[list[int], list[int], list[int]]:
    return list(bounds[0]), list(bounds[1]), list(bounds[2])


def _plugin_record(final: PluginHandle, metadata: str | None) -> PluginRecord:
    fields = encode_fields(final.get_fields_to_serialize(), where=final.where)
    return PluginRecord(
        name=final.name,
        version=final.version,
        namespace=final.namespace,
        fields=[FieldRecord(**field) for field in fields],
        metadata=metadata,
    )


def _layer_record(
    layer: PluginLayer, tuned: TunedLayer, choice: Choice, profile: int, metadata: str | None
) -> LayerRecord:
    formats = [str(layout) for layout in choice.combination]
    candidates = [
        msgspec.structs.replace(c, chosen=c.formats == formats and c.tactic == choice.tactic) for c in tuned.table
    ]
    return LayerRecord(name=layer.name, profile=profile, candidates=candidates, metadata=metadata)
