"""The short way: a model in, an engine out.

``compile`` imports, builds and loads in one call. What it cannot say, ``Builder`` and ``BuilderConfig`` can.
"""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from dovetail.build.builder import Builder, engine_from_plan
from dovetail.build.config import BuilderConfig
from dovetail.build.notebook_progress import NotebookProgress, is_notebook
from dovetail.build.precision.compare import compare_outputs
from dovetail.build.precision.options import PrecisionOptions
from dovetail.build.profile import OptimizationProfile
from dovetail.build.progress import IProgressMonitor, make_progress
from dovetail.build.shapes import complete_profile
from dovetail.errors import PlanCorruptError, ProviderError, UsageError
from dovetail.loggers import ILogger, Severity
from dovetail.network.api.definition import Network
from dovetail.network.importer.importer import import_model
from dovetail.network.importer.kernels import find_kernel_for
from dovetail.network.pytorch.export import export_torch, is_torch_model
from dovetail.plugin.registry import PluginRegistry
from dovetail.provider.defaults import default_providers
from dovetail.provider.loader import get_factory
from dovetail.runtime.engine import Engine

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir
    import torch

__all__ = ["compile", "profile_from_shapes"]

Shape = Sequence[int]
Bounds = tuple[Shape, Shape, Shape]
Model: TypeAlias = (
    "str | os.PathLike[str] | bytes | onnx.ModelProto | ir.Model | Network | torch.nn.Module"
    " | torch.export.ExportedProgram"
)
"""What can be built."""


def compile(  # noqa: A001 - what users look for
    model: Model,
    example_inputs: Any = None,
    *,
    providers: Sequence[str] | None = None,
    shapes: Mapping[str, Shape | Bounds] | None = None,
    profiles: Sequence[Mapping[str, Shape | Bounds]] | None = None,
    rivals: bool = False,
    strict: bool = False,
    precision: str | PrecisionOptions | None = None,
    config: BuilderConfig | None = None,
    registry: PluginRegistry | None = None,
    override: Collection[str] = (),
    logger: ILogger | None = None,
    progress: bool | IProgressMonitor = False,
) -> Engine:
    """Build an engine from a model.

    Args:
        model: A path, the bytes of a model, a ModelProto, an onnx-ir model, a network, or, where PyTorch is installed,
            a ``torch.nn.Module`` in evaluation mode or a ``torch.export.ExportedProgram``.
        example_inputs: For a module of PyTorch: what its ``forward`` is traced with, as a tuple, a mapping by name, or
            one tensor. Dimensions that differ within ``shapes`` and ``profiles`` are dynamic in the engine.
        providers: Back ends in order of preference; by default ``onnxruntime`` where it is installed, then ``cpu``,
            which also runs what no other one takes.
        shapes: For each dynamic input one shape, or (min, opt, max); an input of a model whose dynamic dimensions all
            have names that occur in these needs none. Without shapes the engine is open: it takes any shape and sizes
            its memory when shapes change.
        profiles: Several such mappings, for several profiles.
        rivals: Where several of the providers can take nodes, time whole assignments and keep the fastest.
        strict: End the build where it would otherwise report and go on.
        precision: The types to compute in: ``"fp16"``, ``"bf16"``, ``"int8+fp16"``, or options, which have calibration
            data and what stays in fp32 too. How far the outputs are from those of the fp32 network is logged.
        config: Everything else; its profiles are used too, and the engine runs with its provider options.
        registry: Registry of plugins; by default that of the builder that made a network, or the global one.
        override: Operators that are plugins although ONNX has them.
        logger: Where messages go.
        progress: True to show how far the build is, on the terminal or in the notebook; or a monitor that is told.
    """
    builder = Builder(logger)
    settings = _copy_config(config)
    settings.strict = settings.strict or strict
    settings.rivals = settings.rivals or rivals
    if precision is not None:
        settings.precision = PrecisionOptions.parse(precision) if isinstance(precision, str) else precision
    if providers is not None:
        settings.providers = [providers] if isinstance(providers, str) else list(providers)
    for name in settings.providers or ():
        get_factory(name)
    added = [profile_from_shapes(bounds) for bounds in ([shapes] if shapes else []) + list(profiles or [])]
    for profile in added:
        settings.add_optimization_profile(profile)
    if progress is not False:
        settings.progress_monitor = _make_monitor(progress)
    model = _export(model, example_inputs, settings.profiles)
    lookup = registry or _find_registry(model) or builder.get_plugin_registry()
    source: ir.Model | Network = (
        model if isinstance(model, Network) else _import(model, settings, lookup, builder.logger, override)
    )
    if not isinstance(source, Network):
        for profile in added:
            complete_profile(profile, source.graph.inputs)
    plan = builder.build_plan(source, settings, is_open=not settings.profiles, registry=lookup, is_loaded=True)
    del source  # and with it the map of the weights as the model has them
    try:
        engine = engine_from_plan(plan, lookup, settings.provider_options)
    except PlanCorruptError as error:  # nobody could have damaged it: its provider built what it does not take
        fix = "check the node and its weights, or leave the node to another provider"
        raise ProviderError(error.what, where=error.where, fix=fix) from error
    for difference in compare_outputs(engine, plan.samples):
        builder.logger.log(Severity.INFO, f"against fp32, {difference.describe()}")
    return engine


def _export(
    model: Model, example_inputs: Any, profiles: Sequence[OptimizationProfile]
) -> str | os.PathLike[str] | bytes | onnx.ModelProto | ir.Model | Network:
    """The model itself, or what PyTorch exports of a module."""
    if is_torch_model(model):
        return export_torch(model, example_inputs, _gather_bounds(profiles))
    if example_inputs is not None:
        raise UsageError(
            "only a module of PyTorch is exported over example inputs",
            where="example_inputs",
            got=f"a {type(model).__name__} as model",
            fix="leave them out",
        )
    return cast("str | bytes | onnx.ModelProto | ir.Model | Network", model)


def _gather_bounds(profiles: Sequence[OptimizationProfile]) -> dict[str, list[Shape]]:
    """The least and the greatest shapes of each input over all profiles."""
    found: dict[str, list[Shape]] = {}
    for profile in profiles:
        for name, bounds in profile.shapes.items():
            found.setdefault(name, []).extend(bounds)
    return found


def _find_registry(model: object) -> PluginRegistry | None:
    """Return the registry of the builder that made a network, so that its engine has the same plugins."""
    return model.registry if isinstance(model, Network) else None


def _make_monitor(progress: bool | IProgressMonitor) -> IProgressMonitor | None:
    if progress is not True:
        return progress or None
    return NotebookProgress() if is_notebook() else make_progress(sys.stderr)


def _import(
    model: str | os.PathLike[str] | bytes | onnx.ModelProto | ir.Model,
    settings: BuilderConfig,
    registry: PluginRegistry,
    logger: ILogger,
    override: Collection[str],
) -> ir.Model:
    find = find_kernel_for(settings.providers or default_providers())
    return import_model(
        model,
        registry=registry,
        logger=logger,
        override=override,
        kernels=find,
        limits=settings.growth_limits,
        is_part=settings.is_part,
    )


def _copy_config(config: BuilderConfig | None) -> BuilderConfig:
    """The caller's settings, which stay as they are when profiles are added."""
    if config is None:
        return BuilderConfig()
    if not isinstance(config, BuilderConfig):
        raise UsageError("not a builder configuration", where="config", got=type(config).__name__)
    settings = copy.copy(config)
    settings.profiles = list(config.profiles)
    return settings


def profile_from_shapes(shapes: Mapping[str, Shape | Bounds]) -> OptimizationProfile:
    """A profile from one shape an input, or from (min, opt, max).

    >>> [tuple(d) for d in profile_from_shapes({"x": (2, 3)}).get_shape("x")]
    [(2, 3), (2, 3), (2, 3)]
    """
    if not isinstance(shapes, Mapping):
        raise UsageError("not a mapping from input to shape", where="shapes", got=repr(shapes)[:80])
    profile = OptimizationProfile()
    for name, value in shapes.items():
        profile.set_shape(name, *_bounds(name, value))
    return profile


def _bounds(name: str, value: Any) -> Bounds:
    parts: list[Any] = list(value) if isinstance(value, Iterable) else [None]
    if all(hasattr(part, "__index__") for part in parts):
        return parts, parts, parts
    if len(parts) != 3:
        expected = "a shape, or (min, opt, max)"
        raise UsageError("not a shape", where=f"input '{name}'", expected=expected, got=repr(value)[:80])
    return parts[0], parts[1], parts[2]
