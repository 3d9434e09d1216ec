"""The build itself: from a model to a manifest and its blobs, profile by profile.

Effects on plugins happen in the contract's order; everything decided is written into the manifest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import onnx_ir as ir

from dovetail._unset_dims import tell_unset
from dovetail._version import __version__
from dovetail.build.assign.assigner import Assigner
from dovetail.build.assign.provider_passes import pass_records, rewrite_for_providers
from dovetail.build.built_records import BuiltStore
from dovetail.build.calibrate.scales import find_scales
from dovetail.build.config import BuilderFlag, PreviewFeature, ProfilingVerbosity
from dovetail.build.device_records import device_records
from dovetail.build.formats.network_formats import choose_formats
from dovetail.build.formats.ports import TypeRule, find_aliases, infer_plugin_dims, make_plugin_layer
from dovetail.build.graph_checks import check_graph, check_profiled
from dovetail.build.idle_settings import PRECISION_FLAGS, find_idle_candidates, find_idle_types, tell_idle
from dovetail.build.lower.blobs import BlobTable
from dovetail.build.lower.lowering import lower_graph
from dovetail.build.lower.memory.aliases import (
    check_alias_names,
    check_alias_sizes,
    check_aliases,
    find_wanted_aliases,
)
from dovetail.build.lower.memory.io_memory import find_io_memory
from dovetail.build.lower.program_context import ChosenPlugin, ProgramContext
from dovetail.build.lower.tensor_records import (
    TensorPlaces,
    find_io_aliases,
    find_shape_inputs,
    input_records,
    output_records,
)
from dovetail.build.plan_plugins import check_copy, check_creator_exists, check_runtime_plugin
from dovetail.build.plan_records import (
    layer_record,
    library_records,
    list_layers,
    phase_records,
    plugin_record,
    profile_record,
    refit_record,
)
from dovetail.build.precision.kinds import USED_TYPES
from dovetail.build.profile import OptimizationProfile
from dovetail.build.progress import Phases
from dovetail.build.request import BuildRequest, BuiltPlan
from dovetail.build.services import BuildServices
from dovetail.build.shapes import ProfileShapes, find_unset_symbols, known_dims, ranges_from_profile, static_symbols
from dovetail.build.tune.plugin_run.runner import PluginRunner
from dovetail.build.tune.plugins import Choice, PluginTuner, TunedLayer
from dovetail.build.tune.session import CacheSession
from dovetail.build.tune.trial import PluginLayer, dynamic_descs
from dovetail.build.tune.tuner import CandidateTuner, tuner_options
from dovetail.errors import BuildError
from dovetail.expr import Expr, SizeTensor, Symbol, symbols_of
from dovetail.network.inference.shapes import ShapeInference, size_symbols
from dovetail.network.plugins import PluginEntry, entry_of
from dovetail.plan.manifest import (
    FORMAT_VERSION,
    LayerRecord,
    Manifest,
    PluginRecord,
    ProgramRecord,
    find_stripped,
)
from dovetail.plugin.handle import PluginHandle
from dovetail.plugin.kernels import LAUNCHED, encode_launch
from dovetail.provider.interfaces import BuiltKernel
from dovetail.provider.options import Providers
from dovetail.runtime.bind.instance import ProgramInstance
from dovetail.runtime.bind.template import ProgramTemplate
from dovetail.types import DataType

__all__ = ["build_plan", "reference_program"]


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
        self._wanted_aliases = find_wanted_aliases(request.config.aliases, request.updates)
        self._all_providers = Providers(request.config.provider_options, request.logger)
        self._providers = [self._all_providers[name] for name in _with_host(request.providers)]
        self._preferred = [self._all_providers[name] for name in request.order or request.providers]
        """The providers in the caller's order, or in that of a rival: the first one decides where tensors are."""
        self._session = CacheSession(self._config, request.logger)
        self._tuner = CandidateTuner(tuner_options(self._config), self._session, request.logger, phases)
        self._plugin_tuner = PluginTuner(self._tuner)
        self._plugin_runner = PluginRunner(self._tuner, self._plugin_tuner, is_enabled=self._config.run_plugins)
        self._services = BuildServices(
            request.config,
            request.logger,
            self._tuner,
            keep=request.refittable,
            aliases=self._wanted_aliases,
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
        self._plugin_runner.close()
        self._services.close()
        self._tuner.close()
        self._session.close()
        for handle in reversed(self._owned):
            handle.destroy(self._request.logger)

    def _own(self, handle: PluginHandle) -> PluginHandle:
        self._owned.append(handle)
        return handle

    def _clone(self, handle: PluginHandle) -> PluginHandle:
        clone = self._own(handle.clone())
        check_copy(handle, clone, "clone")
        return clone

    def build(self) -> BuiltPlan:
        """All phases."""
        check_graph(self._graph)
        check_alias_names(self._config.aliases, self._graph)
        with self._phases.phase("Analyse network", steps=3) as phase:
            self._static = static_symbols(self._graph.inputs)
            phase.step()
            self._infer_shapes()
            check_alias_sizes(self._config.aliases, self._graph)
            self._passes = pass_records(self._request.passes)
            if not self._request.is_reference:
                self._passes += rewrite_for_providers(self._assigner, off=self._config.passes_off)
            if any(record.provider for record in self._passes):
                self._infer_shapes()
            phase.step()
            if not self._request.is_open and not self._config.profiles:
                check_profiled(self._graph)
            self._graph_handles = {node: self._clone(entry.handle) for node, entry, _ in self._plugin_nodes()}
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

    @property
    def _is_detailed(self) -> bool:
        return self._config.profiling_verbosity is ProfilingVerbosity.DETAILED

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
        for node, entry, _ in nodes:
            if not self._request.is_reference:  # calibration and precision trials run the whole network
                self._plugin_runner.run_once(layers[node], choices[node], index)
            context.chosen[node] = self._finish(node, entry, layers[node], tuned[node], choices[node], index)
        if self._io_memory is None:
            shape_inputs = find_shape_inputs(self._graph, self._inference, self._static, self._plugin_symbols)
            self._io_memory = find_io_memory(self._graph, self._preferred, self._config.io_memory, shape_inputs)
        context.io_memory = self._io_memory
        program = lower_graph(self._graph, context)
        aliases = find_io_aliases(program)
        check_aliases(self._config.aliases, aliases)
        self._aliases.update(aliases)
        return program

    def _tell_idle_types(self) -> None:
        """Tell which of the allowed types no plugin layer can use; INT8 without a scale is told by the calibration."""
        if self._request.strongly_typed or self._request.is_reference:
            return
        has_scales = bool(find_scales(self._graph, self._request.ranges))
        used = self._narrow_types if has_scales else self._narrow_types | {DataType.INT8}
        used |= {USED_TYPES[row.type] for row in self._request.precision if row.type in USED_TYPES}
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
            aliases=self._wanted_aliases,
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
        is_enabled = self._config.get_preview_feature(PreviewFeature.ALIASED_PLUGIN_IO_10_03)
        aliases = find_aliases(node, graph_handle, entry.num_inputs, is_enabled=is_enabled)
        handle = self._clone(graph_handle)
        rule = _type_rule(self._request)
        layer = make_plugin_layer(
            node, entry, handle, context, rule, inference=self._inference, aliases=aliases, in_body=in_body
        )
        _check_launch(layer)
        return layer

    def _finish(
        self,
        node: ir.Node,
        entry: PluginEntry,
        layer: PluginLayer,
        tuned: TunedLayer,
        choice: Choice,
        profile: int,
    ) -> ChosenPlugin:
        """The final object: attached, configured with what was chosen, asked for what the plan stores."""
        final = self._own(layer.handle.attach_to_context(self._plugin_tuner.find_context(layer.provider)))
        check_copy(layer.handle, final, "attach_to_context")
        final.configure(*dynamic_descs(layer, choice.combination))
        final.set_tactic(choice.tactic)
        workspace_bytes = self._plugin_tuner.ask_workspace(layer, final, choice.combination)
        metadata = final.metadata_string
        self._tables.append(layer_record(layer, tuned, choice, profile, metadata))
        kernel = _build_plugin_kernel(final, layer, choice) if final.offers_kernel else None
        record = plugin_record(final, metadata, has_fields=kernel is None)
        if kernel is None:
            self._check_stored_plugin(entry, layer, record, choice.tactic)
        self._finals[id(record)] = final
        return ChosenPlugin(
            handle=self._graph_handles[node],
            combination=choice.combination,
            tactic=choice.tactic,
            workspace_bytes=workspace_bytes,
            asks_workspace=not layer.is_bounded,
            record=record,
            aliases=layer.aliases,
            kernel=kernel,
        )

    def _check_stored_plugin(self, entry: PluginEntry, layer: PluginLayer, record: PluginRecord, tactic: int) -> None:
        """Create the plugin as a loaded plan does; a creator that is not registered here may be where it is loaded."""
        registry = self._request.registry
        if registry is None or self._request.is_reference:
            return
        can_create = check_creator_exists(record, layer.handle, registry, entry.creator)
        if can_create and layer.provider.is_here and not self._request.is_loaded:
            context = self._plugin_tuner.find_context(layer.provider)
            logger = self._request.logger
            check_runtime_plugin(layer.name, record, tactic, registry=registry, context=context, logger=logger)

    # the manifest

    def _assemble(self, programs: list[ProgramRecord]) -> BuiltPlan:
        request = self._request
        libraries = library_records(request.libraries, self._blobs)
        refit = refit_record(request, self._blobs)
        is_stripped = refit is not None and self._config.get_flag(BuilderFlag.STRIP_PLAN)
        strip = find_stripped(refit, self._store.packed) if refit is not None and is_stripped else frozenset[str]()
        blobs, records = self._blobs.finish(strip=strip)
        shape_inputs = find_shape_inputs(self._graph, self._inference, self._static, self._plugin_symbols)
        has_devices = any(not provider.memory.is_host for provider in self._providers)
        places = TensorPlaces(memory=self._io_memory or {}, has_devices=has_devices)
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
            profiles=[profile_record(profile) for profile in self._config.profiles],
            programs=programs,
            blobs=records,
            libraries=libraries,
            devices=device_records(programs, self._providers, self._preferred[0]),
            refit=refit,
            packed=self._store.packed,
            tuning=[*self._tables, *self._services.tables.records],
            build={"profiling_verbosity": self._config.profiling_verbosity.name},
            notes=self._assigner.all_notes,
            refusals=self._assigner.list_refusals(list_layers(programs)),
            passes=self._passes,
            phases=phase_records(self._phases) if self._is_detailed else [],
            precision=list(request.precision),
        )
        tell_idle(find_idle_candidates(self._config, manifest), request.logger, strict=self._config.strict)
        return BuiltPlan(manifest, blobs)


def _with_last(order: Sequence[str]) -> list[str]:
    """An order in which ``cpu`` gets what is left, unless it stands elsewhere; no order stays none."""
    return [*order, "cpu"] if order and "cpu" not in order else list(order)


def _with_host(names: Sequence[str]) -> list[str]:
    return [*(name for name in dict.fromkeys(names) if name != "cpu"), "cpu"]


def _check_launch(layer: PluginLayer) -> None:
    """A plugin that is a kernel needs a provider that launches it."""
    if layer.handle.offers_kernel and not layer.provider.can_launch:
        raise BuildError(
            "the plugin is a kernel of a device, and no provider of this build launches it",
            where=f"layer '{layer.name}', {layer.handle.where}",
            expected="a provider such as 'cuda', which needs a CUDA device and the package dovetail-cuda",
            got=f"provider '{layer.provider.id}'",
            fix="build where a device is; or name one that is not here (provider 'cuda' with option target=sm_90); "
            "or run the plugin's Python (aot=False) where it has some",
        )


def _build_plugin_kernel(final: PluginHandle, layer: PluginLayer, choice: Choice) -> BuiltKernel:
    """What the plan stores of a plugin that is a kernel."""
    launch = final.get_kernel_launch(*dynamic_descs(layer, choice.combination))
    return BuiltKernel(payload=encode_launch(launch, final.where), code={LAUNCHED: launch.code})


def _type_rule(request: BuildRequest) -> TypeRule:
    extra = tuple(dtype for flag, dtype in PRECISION_FLAGS.items() if request.config.get_flag(flag))
    return TypeRule(
        strongly_typed=request.strongly_typed,
        extra=() if request.strongly_typed else extra,
        linear_only=request.is_reference,
    )


def _narrow_types(layer: PluginLayer, tuned: TunedLayer) -> frozenset[DataType]:
    """The types that a layer accepted besides those of its tensors."""
    combinations = [choice.combination for choice in tuned.choices]
    pairs = [pair for combination in combinations for pair in zip(layer.tensors, combination, strict=True)]
    return frozenset(layout.data_type for tensor, layout in pairs if layout.dtype != tensor.dtype)
