"""Settings that change nothing for a network: each is told, with the reason and what to do instead.

Whoever sets a flag expects something of it. A flag is taken to do nothing unless it is known here to do something, so
that a new one is told until somebody makes it work.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

import onnx_ir as ir

from dovetail.build.assign.layers import layer_name
from dovetail.build.calibrate.scales import graph_values
from dovetail.build.config import BuilderConfig, BuilderFlag, MemoryPoolType, PreviewFeature
from dovetail.errors import UsageError
from dovetail.loggers import ILogger, Severity
from dovetail.near_names import name_known, suggest
from dovetail.network.api.definition import Network
from dovetail.network.api.enums import LayerType
from dovetail.network.api.layers.base import ILayer
from dovetail.plan.carried import count_carried
from dovetail.plan.manifest import Manifest
from dovetail.types import DataType

if TYPE_CHECKING:
    from dovetail.build.request import BuildRequest

__all__ = [
    "PRECISION_FLAGS",
    "check_layer_names",
    "find_idle_candidates",
    "find_idle_settings",
    "find_idle_types",
    "tell_idle",
]

PRECISION_FLAGS: Final[Mapping[BuilderFlag, DataType]] = {
    BuilderFlag.FP16: DataType.HALF,
    BuilderFlag.BF16: DataType.BF16,
    BuilderFlag.INT8: DataType.INT8,
    BuilderFlag.FP8: DataType.FP8,
}
"""The types that flags allow in weakly typed networks."""
_CONSTRAINTS: Final = (BuilderFlag.OBEY_PRECISION_CONSTRAINTS, BuilderFlag.PREFER_PRECISION_CONSTRAINTS)

_WORKING: Final = frozenset((BuilderFlag.DISABLE_TIMING_CACHE, BuilderFlag.ERROR_ON_TIMING_CACHE_MISS))
_REFIT: Final = frozenset(
    (BuilderFlag.REFIT, BuilderFlag.REFIT_IDENTICAL, BuilderFlag.REFIT_INDIVIDUAL, BuilderFlag.STRIP_PLAN)
)
_REASONS: Final[Mapping[BuilderFlag, str]] = {
    BuilderFlag.DEBUG: "layers run one after the other already, and an error names its layer",
    BuilderFlag.GPU_FALLBACK: "providers say themselves what they run; choose and order them with config.providers",
    BuilderFlag.EDITABLE_TIMING_CACHE: "every timing cache can be edited",
    BuilderFlag.TF32: "how FP32 is computed is up to the providers, which are not told",
    BuilderFlag.SPARSE_WEIGHTS: "no tactic uses that weights are sparse",
    BuilderFlag.SAFETY_SCOPE: "there is no restricted scope; dovetail check --strict judges plugins more strictly",
    BuilderFlag.DIRECT_IO: "inputs and outputs have the formats of the network; set ITensor.allowed_formats",
    BuilderFlag.VERSION_COMPATIBLE: "which versions read a plan is the same for all plans, see docs/plan-versions.md",
    BuilderFlag.EXCLUDE_LEAN_RUNTIME: "a plan carries no runtime",
    BuilderFlag.DISABLE_COMPILATION_CACHE: "there is no compilation cache",
    BuilderFlag.WEIGHT_STREAMING: "weights are mapped from the plan file as it is",
    BuilderFlag.STRICT_NANS: "it switches no pass off; leave passes out with config.passes_off (--off)",
    BuilderFlag.MONITOR_MEMORY: "memory is not monitored",
    BuilderFlag.DISTRIBUTIVE_INDEPENDENCE: "no tactic is chosen by it",
}
_UNREAD: Final[Mapping[str, str]] = {
    "avg_timing_iterations": "the tuner repeats a measurement until it can tell candidates apart",
    "builder_optimization_level": "every candidate is timed; limit them with config.max_num_tactics",
    "engine_capability": "there is one kind of engine",
}
_BY_ANOTHER_WAY: Final[Mapping[BuilderFlag, str]] = {
    BuilderFlag.INT8: "add Q/DQ layers",
}


def tell_idle(texts: Iterable[str], logger: ILogger, *, strict: bool) -> None:
    """Log a warning for each; with ``strict`` the first is an error.

    Raises:
        UsageError: With ``strict``, that a setting does nothing.
    """
    for text in texts:
        if strict:
            raise UsageError(text, where="config", fix="leave the setting out, or build without strict")
        logger.log(Severity.WARNING, text)


def find_idle_settings(request: BuildRequest, source: Network | ir.Model) -> Iterator[str]:
    """What was set and does nothing for this network, as far as it is known before the build."""
    network = source if isinstance(source, Network) else None
    for flag in request.config.chosen_flags:
        reason = _explain_flag(flag, request, network)
        if reason is not None:
            yield f"BuilderFlag.{flag.name} has no effect: {reason}"
    yield from _find_idle_limits(request.config)
    yield from _find_idle_attributes(request.config)
    if request.config.rivals and len(set(request.providers)) < 2:
        yield f"config.rivals has no effect: '{request.providers[0]}' is the only provider that was asked for"
    if request.config.rival_inputs and not request.config.rivals:
        yield "config.rival_inputs has no effect: without config.rivals nothing is timed with them"
    if network is not None:
        yield from _find_idle_wishes(network, request.config)
    yield from _find_idle_ranges(request)


def find_idle_types(config: BuilderConfig, used: frozenset[DataType]) -> Iterator[str]:
    """The types that flags allow in a weakly typed network and that no layer of it can use."""
    for flag, dtype in PRECISION_FLAGS.items():
        if config.get_flag(flag) and dtype not in used:
            yield (
                f"BuilderFlag.{flag.name} has no effect: {dtype.name} is proposed to plugin layers for FLOAT tensors, "
                f"and none of this network can use it; add casts to {dtype.name} where other layers should"
            )


def _explain_flag(flag: BuilderFlag, request: BuildRequest, network: Network | None) -> str | None:
    """Why a flag does nothing; None when it does something, or is looked at after the build."""
    if flag in PRECISION_FLAGS:
        return _explain_precision(flag, is_model=network is None) if request.strongly_typed else None
    if flag in _CONSTRAINTS:
        is_fixed = request.strongly_typed or network is None
        return "types are chosen for the layers of weakly typed networks only" if is_fixed else None
    if flag is BuilderFlag.REFIT_INDIVIDUAL and network is None:
        return "a model has no marked weights, so that all of them can be replaced; BuilderFlag.REFIT says the same"
    if flag in _REFIT:
        return None if request.refittable else f"no weight can be replaced{_first_reason(request.excluded_weights)}"
    return None if flag in _WORKING else _REASONS.get(flag, "nothing reads it")


def _explain_precision(flag: BuilderFlag, *, is_model: bool) -> str:
    dtype = PRECISION_FLAGS[flag].name
    whose = "the types of an ONNX model are its own" if is_model else "the network is strongly typed"
    option = f"set config.precision (dovetail build --{flag.name.lower()})"
    convert = option if is_model else f"add casts to {dtype}"
    instead = convert if is_model else _BY_ANOTHER_WAY.get(flag, convert)
    return f"{whose}; {instead}, or build a network with create_network(strongly_typed=False), where it is proposed"


def _first_reason(excluded: Mapping[str, str]) -> str:
    return next((f": '{name}' is {reason}" for name, reason in excluded.items()), ", as there is none")


def _find_idle_limits(config: BuilderConfig) -> Iterator[str]:
    for pool in MemoryPoolType:
        if pool is not MemoryPoolType.WORKSPACE and config.get_memory_pool_limit(pool):
            yield f"the limit of MemoryPoolType.{pool.name} has no effect: only WORKSPACE is limited"
    if config.get_preview_feature(PreviewFeature.RUNTIME_ACTIVATION_RESIZE_10_10):
        yield (
            "PreviewFeature.RUNTIME_ACTIVATION_RESIZE_10_10 has no effect: engines built without a profile size their "
            "memory when shapes change, others for their profiles"
        )
    if any(profile.extra_memory_target != 1.0 for profile in config.profiles):
        yield "extra_memory_target of a profile has no effect: memory is what the largest shapes need"
    has_cache = config.timing_cache_path is not None or config.get_timing_cache() is not None
    if has_cache and config.get_flag(BuilderFlag.DISABLE_TIMING_CACHE):
        yield "the timing cache has no effect: BuilderFlag.DISABLE_TIMING_CACHE is set"


def _find_idle_attributes(config: BuilderConfig) -> Iterator[str]:
    default = BuilderConfig()
    for name, reason in _UNREAD.items():
        if getattr(config, name) != getattr(default, name):
            yield f"config.{name} has no effect: {reason}"
    if config.get_calibration_profile() is not None and config.int8_calibrator is None:
        yield "the calibration profile has no effect: there is no calibrator"


def check_layer_names(request: BuildRequest, source: Network | ir.Model) -> None:
    """Check that every pattern of ``config.layer_providers`` fits a layer.

    Raises:
        UsageError: One fits none, and the model is no part of a larger one.
    """
    if not request.config.layer_providers or request.config.is_part:
        return
    models = (source.to_model() if isinstance(source, Network) else source, request.model)
    names = list(dict.fromkeys(layer_name(node) for model in models for node in model.graph.all_nodes()))
    for pattern in request.config.layer_providers:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise UsageError(
                f"no layer is called '{pattern}'",
                where="config.layer_providers",
                expected=f"one of {name_known(names)}",
                fix=suggest(pattern, names) or "name a layer; * and ? stand for any characters",
            )


def _find_idle_wishes(network: Network, config: BuilderConfig) -> Iterator[str]:
    layers = [network.get_layer(index) for index in range(network.num_layers)]
    is_choice = not network.strongly_typed and any(config.get_flag(flag) for flag in PRECISION_FLAGS)
    is_checked = is_choice and any(config.get_flag(flag) for flag in _CONSTRAINTS)

    def is_idle(dtype: DataType | None) -> bool:
        return dtype is not None and not is_checked and not (is_choice and dtype is DataType.FLOAT)

    asked = {
        "precision": [layer for layer in layers if is_idle(layer.precision)],
        "set_output_type": [layer for layer in layers if any(map(is_idle, _output_types(layer)))],
    }
    for what, found in asked.items():
        if found:
            names = ", ".join(f"'{layer.name}'" for layer in found[:3]) + (", ..." if len(found) > 3 else "")
            yield f"{what} of layer {names} has no effect: layers compute in the types of their inputs; add casts"


def _output_types(layer: ILayer) -> list[DataType]:
    """Return the types that were set for the outputs of a layer and that it does not have anyway."""
    if layer.layer_type is LayerType.IDENTITY:  # it converts
        return []
    return [layer.get_output_type(i) for i in range(layer.num_outputs) if layer.output_type_is_set(i)]


def _find_idle_ranges(request: BuildRequest) -> Iterator[str]:
    if not request.ranges or (request.config.get_flag(BuilderFlag.INT8) and not request.strongly_typed):
        return
    values = graph_values(request.model.graph)
    idle = [value.name for value in values if value.name in request.ranges and value.dtype != ir.DataType.INT8]
    if idle:
        why = "the network is strongly typed" if request.strongly_typed else "BuilderFlag.INT8 is not set"
        yield f"the dynamic range of '{idle[0]}' has no effect: {why}"


def find_idle_candidates(config: BuilderConfig, manifest: Manifest) -> Iterator[str]:
    """That candidates are to be carried and no provider had any, or none within the limit."""
    if config.candidate_bytes and not count_carried(manifest):
        yield "config.candidate_bytes (--carry-candidates) has no effect: nothing that could be chosen is carried"
