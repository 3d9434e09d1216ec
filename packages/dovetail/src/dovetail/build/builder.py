"""The builder: makes networks and configurations, and turns a network into a plan."""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import onnx_ir as ir

from dovetail._extras import install_line
from dovetail._no_op_context import NoOpContext
from dovetail.build.calibrate.calibration import collect_ranges
from dovetail.build.config import BuilderConfig
from dovetail.build.idle_settings import check_layer_names, find_idle_settings, tell_idle
from dovetail.build.planner import build_plan
from dovetail.build.precision.apply import apply_precision
from dovetail.build.precision.flags import check_constraints, options_from_flags
from dovetail.build.precision.trial import Sample
from dovetail.build.profile import OptimizationProfile
from dovetail.build.progress import Phases
from dovetail.build.refittable import find_weight_layers, split_weights
from dovetail.build.request import BuildRequest, BuiltPlan
from dovetail.build.tune.rivals import OpenPlan, build_fastest
from dovetail.decoding import judging
from dovetail.errors import BuildError, DovetailError, ResourceError, UsageError
from dovetail.host_memory import HostMemory
from dovetail.loggers import ErrorCode, ErrorRecorder, IErrorRecorder, ILogger, Logger, Severity
from dovetail.network.api.definition import Network
from dovetail.network.api.enums import NetworkDefinitionCreationFlag
from dovetail.passes import standard_passes
from dovetail.passes.base import run_passes
from dovetail.passes.clone import clone_model
from dovetail.plan.container import PlanFile, plan_bytes, write_plan
from dovetail.plan.manifest import Manifest, encode_manifest
from dovetail.plugin.libraries import pack_library
from dovetail.plugin.registry import PluginRegistry, get_plugin_registry
from dovetail.provider.defaults import default_providers
from dovetail.provider.options import ProviderOptions, Providers
from dovetail.runtime.engine import Engine
from dovetail.runtime.memory.blobs import BlobStore

__all__ = ["Builder", "engine_from_plan"]

_MAPPED_BYTES: Final = 4 << 20
"""Weights from which on a plan that was just built goes through a file."""

_FIX: Final = "check the model, for example with onnx.checker; if it is right, report it with the model"
_HEAVY_OPS: Final = frozenset(("Attention", "Conv", "ConvTranspose", "Gemm", "GRU", "LSTM", "MatMul"))
"""What takes most of the time in most models."""


class Builder(NoOpContext):
    """Where building starts. Its registry is searched before the global one."""

    def __init__(self, logger: ILogger | None = None) -> None:
        self.logger: ILogger = logger or Logger()
        self.error_recorder: IErrorRecorder = ErrorRecorder()
        self.max_threads = 0
        """How many threads providers may compile in; 0 for one a core. Timing is done one thing after the other."""
        self.num_DLA_cores = 0
        self.max_DLA_batch_size = 0
        self.phase_times: list[tuple[str, str | None, float]] = []
        """Name, parent and seconds of every phase of the last build."""
        self._registry = PluginRegistry(parent=get_plugin_registry())

    def __repr__(self) -> str:
        return f"<Builder with {self._registry!r}>"

    def get_plugin_registry(self) -> PluginRegistry:
        """The registry of this builder."""
        return self._registry

    def create_network(self, flags: int = 0, *, strongly_typed: bool = True) -> Network:
        """An empty network. ``strongly_typed=False`` is the older rule, where flags of the configuration add types.

        Raises:
            UsageError: The flags say that it is strongly typed, and the argument that it is not.
        """
        _check_creation(flags, strongly_typed=strongly_typed)
        network = Network(strongly_typed=strongly_typed, registry=self._registry)
        network.preferences = sum(flags & 1 << flag for flag in _PREFERENCES)
        network.builder, network.error_recorder = self, self.error_recorder
        return network

    def create_builder_config(self) -> BuilderConfig:
        """A configuration with the defaults."""
        return BuilderConfig()

    def create_optimization_profile(self) -> OptimizationProfile:
        """An empty profile."""
        return OptimizationProfile()

    def build_serialized_network(self, network: Network, config: BuilderConfig) -> HostMemory:
        """The plan as bytes."""
        plan = self.build_plan(network, config)
        return HostMemory(plan_bytes(encode_manifest(plan.manifest), plan.blobs))

    def build_engine_with_config(self, network: Network, config: BuilderConfig) -> Engine:
        """An engine, without going through a file."""
        return engine_from_plan(
            self.build_plan(network, config, is_loaded=True), self._registry, config.provider_options
        )

    def is_network_supported(self, network: Network, config: BuilderConfig) -> bool:
        """Whether the network can be built; the log says why not."""
        try:
            self.build_plan(network, config)
        except DovetailError as error:
            self.logger.log(Severity.ERROR, str(error))
            return False
        return True

    def build_plan(
        self,
        network: Network | ir.Model,
        config: BuilderConfig,
        *,
        is_open: bool = False,
        name: str = "",
        registry: PluginRegistry | None = None,
        is_loaded: bool = False,
    ) -> BuiltPlan:
        """Build the parts of a plan from a network or an imported model.

        Args:
            network: The network or model to build.
            config: The build configuration.
            is_open: Whether dynamic dims need no profile.
            name: Name of the engine; by default that of the network.
            registry: Registry of the creators of plugins, for checks and timing of the plan; by default the builder's
                own.
            is_loaded: Whether the caller loads the plan at once, which reports plugins that cannot be created from it;
                by default the build creates each plugin from its stored fields once.
        """
        phases = Phases(config.progress_monitor)
        try:
            with judging(lambda reason: BuildError(f"the network cannot be built: {reason}", fix=_FIX)):
                request = self._make_request(network, config, phases, is_open=is_open, name=name)
                request.registry, request.is_loaded = registry or self._registry, is_loaded
                check_layer_names(request, network)
                tell_idle(self._find_idle(), self.logger, strict=config.strict)
                tell_idle(find_idle_settings(request, network), self.logger, strict=config.strict)
                request.ranges = collect_ranges(request, phases)
                samples = self._change_types(request, network, phases)
                if config.rivals and len(set(request.providers)) > 1:
                    return replace(build_fastest(request, phases, self._plan_opener(config, registry)), samples=samples)
                return replace(build_plan(request, phases), samples=samples)
        except DovetailError as error:
            self.error_recorder.report_error(ErrorCode.FAILED_INITIALIZATION, str(error).splitlines()[0])
            raise
        finally:
            self.phase_times = list(phases.times)

    def _change_types(self, request: BuildRequest, source: Network | ir.Model, phases: Phases) -> Sequence[Sample]:
        """Give layers the types that were asked for; runs of the network before that come back."""
        options = request.config.precision
        is_weak = options is None and isinstance(source, Network) and not request.strongly_typed
        if is_weak and isinstance(source, Network):
            has_ranges = bool(request.ranges)
            options = options_from_flags(request.config, source, request.model.graph, has_ranges=has_ranges)
        if options is None or options.is_idle:
            return ()
        result = apply_precision(request, options, phases, is_weak=is_weak)
        request.precision = result.records
        if is_weak and isinstance(source, Network):
            check_constraints(request.config, source, result.records, request.logger)
        return result.samples

    def _plan_opener(self, config: BuilderConfig, registry: PluginRegistry | None) -> OpenPlan:
        """What makes engines of plans while they are timed, with plugins and options as they will run."""

        def open_plan(path: Path, manifest: Manifest) -> Engine:
            return _open_engine(path, manifest, registry or self._registry, Providers(config.provider_options))

        return open_plan

    def _find_idle(self) -> list[str]:
        """The attributes of this builder that somebody set, none of which changes anything."""
        settings = {"num_DLA_cores": self.num_DLA_cores, "max_DLA_batch_size": self.max_DLA_batch_size}
        return [f"builder.{name} has no effect: there is no DLA" for name, value in settings.items() if value]

    def _make_request(
        self, source: Network | ir.Model, config: BuilderConfig, phases: Phases, *, is_open: bool, name: str
    ) -> BuildRequest:
        network = source if isinstance(source, Network) else None
        with phases.phase("Optimise network", steps=2) as phase:
            model = clone_model(source.to_model() if isinstance(source, Network) else source)
            phase.step()
            refittable, excluded = split_weights(model, network, config)
            weight_layers = find_weight_layers(model, refittable)
            cleaning = standard_passes(keep=refittable, off=config.passes_off, limits=config.growth_limits)
            extra = list(config.extra_passes)  # not ours, so the model is checked after each
            cleaned, extended = run_passes(model, cleaning), run_passes(model, extra, check=True)
            for line in (*cleaned.changed, *extended.changed):
                self.logger.log(Severity.VERBOSE, line)
            phase.step()
        providers = config.providers or self._choose_providers(model)
        return BuildRequest(
            model=model,
            config=config,
            logger=self.logger,
            name=name or (network.name if network is not None else model.graph.name or ""),
            is_open=is_open and _has_dynamic_inputs(model),
            strongly_typed=network is None or network.strongly_typed,
            ranges=network.dynamic_ranges() if network is not None else {},
            updates=network.cache_updates() if network is not None else {},
            libraries=_pack_libraries(config.plugins_to_serialize),
            refittable=refittable,
            weight_layers=weight_layers,
            excluded_weights=excluded,
            providers=providers,
            passes={**cleaned.counts, **extended.counts},
            num_threads=_check_threads(self.max_threads),
        )

    def _choose_providers(self, model: ir.Model) -> tuple[str, ...]:
        """The default; who has heavy work for it is told when it is the slow one."""
        providers = default_providers()
        if "onnxruntime" not in providers and any(node.op_type in _HEAVY_OPS for node in model.graph):
            self.logger.log(
                Severity.WARNING,
                "ONNX Runtime is not installed, so NumPy runs convolutions and matrix products, many times slower; "
                f'{install_line("onnxruntime")}, or choose providers=["cpu"] if that is what you want',
            )
        return providers


def _check_threads(count: int) -> int:
    if count < 0:
        raise UsageError("not a number of threads", where="builder.max_threads", expected="0 or more", got=count)
    return count


_PREFERENCES: Final = (
    NetworkDefinitionCreationFlag.PREFER_AOT_PYTHON_PLUGINS,
    NetworkDefinitionCreationFlag.PREFER_JIT_PYTHON_PLUGINS,
)


def _check_creation(flags: int, *, strongly_typed: bool) -> None:
    """Refuse flags that contradict an argument."""
    asked = [flag for flag in NetworkDefinitionCreationFlag if flags >> flag & 1]
    if NetworkDefinitionCreationFlag.STRONGLY_TYPED in asked and not strongly_typed:
        raise UsageError("STRONGLY_TYPED is set and strongly_typed is False", where="create_network", fix="say one")


def engine_from_plan(plan: BuiltPlan, registry: PluginRegistry, options: ProviderOptions | None = None) -> Engine:
    """An engine from a plan that was just built, whose blobs are let go; its providers run with these options.

    A plan with large weights goes through a file, so that they are mapped and never copied to memory; it has no name
    any more when the engine is there.
    """
    manifest, providers = plan.manifest, Providers(options)
    if sum(memoryview(blob.data).nbytes for blob in plan.blobs) < _MAPPED_BYTES:
        file = PlanFile.from_bytes(plan_bytes(encode_manifest(manifest), plan.blobs))
        return Engine(manifest, file, registry, providers=providers)
    with tempfile.TemporaryDirectory(prefix="dovetail-") as folder:
        path = Path(folder, "network.plan")
        _write_temporary(path, plan)
        plan.blobs.clear()
        gc.collect()  # graphs have cycles, and as long as they are there the weights that they map are too
        return _open_engine(path, manifest, registry, providers)


def _open_engine(path: Path, manifest: Manifest, registry: PluginRegistry, providers: Providers) -> Engine:
    """An engine of a plan that was just written: nobody else could touch the file, so nothing is checked again."""
    file = PlanFile.open(path)
    blobs = BlobStore(manifest.blobs, file, mapped_by_others=frozenset(manifest.blobs))
    return Engine(manifest, file, registry, blobs=blobs, providers=providers)


def _write_temporary(path: Path, plan: BuiltPlan) -> None:
    try:
        with path.open("xb") as stream:
            write_plan(stream, encode_manifest(plan.manifest), plan.blobs)
    except OSError as error:
        raise ResourceError(
            "there is no room for the weights of the plan",
            where=str(path.parent),
            got=error.strerror or error,
            fix="make room, or name another folder in TMPDIR",
        ) from error


def _has_dynamic_inputs(model: ir.Model) -> bool:
    return any(value.shape is None or not value.shape.is_static() for value in model.graph.inputs)


def _pack_libraries(paths: Sequence[str | os.PathLike[str]]) -> list[tuple[str, bytes]]:
    return [(Path(path).stem, pack_library(Path(path))) for path in paths]
