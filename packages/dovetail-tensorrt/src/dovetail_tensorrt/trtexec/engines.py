"""The engine that is measured: built from a model as the flags say, or loaded from a plan."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import dovetail
from dovetail.errors import InputError, UsageError
from dovetail.file_kinds import START_BYTES, describe_start
from dovetail.files import read_bytes, write_file
from dovetail.loggers import Severity
from dovetail.provider.defaults import default_providers
from dovetail.provider.loader import get_factory, has_provider
from dovetail_tensorrt.trt.parsing.models import MAX_MODEL_BYTES, ParsedModel
from dovetail_tensorrt.trtexec.io_formats import asks_io_formats, set_io_formats
from dovetail_tensorrt.trtexec.precisions import check_layer_types, choose_precision
from dovetail_tensorrt.trtexec.words import Options, read_size

__all__ = ["build_plan", "load_plan", "prepare_plugins"]

_FLAGS: Final = {
    "refit": dovetail.BuilderFlag.REFIT,
    "stripWeights": dovetail.BuilderFlag.STRIP_PLAN,
    "versionCompatible": dovetail.BuilderFlag.VERSION_COMPATIBLE,
    "errorOnTimingCacheMiss": dovetail.BuilderFlag.ERROR_ON_TIMING_CACHE_MISS,
    "noBuilderCache": dovetail.BuilderFlag.DISABLE_TIMING_CACHE,
}
_VERBOSITIES: Final = {
    "layer_names_only": dovetail.ProfilingVerbosity.LAYER_NAMES_ONLY,
    "detailed": dovetail.ProfilingVerbosity.DETAILED,
    "none": dovetail.ProfilingVerbosity.NONE,
}
_POOLS: Final = {
    "workspace": dovetail.MemoryPoolType.WORKSPACE,
    "dlaSRAM": dovetail.MemoryPoolType.DLA_MANAGED_SRAM,
    "dlaLocalDRAM": dovetail.MemoryPoolType.DLA_LOCAL_DRAM,
    "dlaGlobalDRAM": dovetail.MemoryPoolType.DLA_GLOBAL_DRAM,
    "tacticSharedMem": dovetail.MemoryPoolType.TACTIC_SHARED_MEMORY,
}
_PREVIEW: Final = {
    "aliasedPluginIO1003": dovetail.PreviewFeature.ALIASED_PLUGIN_IO_10_03,
    "runtimeActivationResize": dovetail.PreviewFeature.RUNTIME_ACTIVATION_RESIZE_10_10,
}


def prepare_plugins(options: Options) -> None:
    """Register the built-in plugins, and load the libraries that the flags name."""
    registry = dovetail.get_plugin_registry()
    if importlib.util.find_spec("dovetail_tensorrt.builtin") is not None:
        importlib.import_module("dovetail_tensorrt.builtin").register_all(registry, "")
    for path in (*options.get("staticPlugins", ()), *options.get("dynamicPlugins", ())):
        registry.load_library(path)


# building


def build_plan(options: Options, logger: Any) -> bytes:
    """Build the model of the flags; the plan as bytes."""
    path = Path(options.values["onnx"])
    if not path.is_file():
        raise InputError("there is no such file", where="--onnx", got=str(path))
    bounds, notes = find_bounds(options, path)
    for note in notes:
        logger.log(Severity.WARNING, note)
    config = make_config(options)
    shapes = {name: shape[1] if _has_bounds(shape) else shape for name, shape in (bounds[0] if bounds else {}).items()}
    config.precision = choose_precision(options, _load_model(path), shapes, logger)
    override = _override(options, path)
    source: Any = _read_network(path, options, logger, override, config) if asks_io_formats(options) else path
    engine = dovetail.compile(source, profiles=bounds, config=config, logger=logger, override=override)
    if config.timing_cache_path is not None:
        _keep_timings(Path(config.timing_cache_path))
    with engine:
        check_layer_types(options, engine.manifest.precision, logger)
        return bytes(engine.serialize())


def _has_bounds(shape: Any) -> bool:
    """Whether it is min, opt and max, and not one shape."""
    return bool(shape) and not isinstance(shape[0], int)


def _read_network(path: Path, options: Options, logger: Any, override: tuple[str, ...], config: Any) -> Any:
    """The model as a network, whose inputs and outputs have the types and formats of the flags."""
    network = dovetail.Network()
    network.add_model(path, logger=logger, override=override, providers=config.providers)
    set_io_formats(network, options)
    return network


def _override(options: Options, path: Path) -> tuple[str, ...]:
    """Operators of the model for which a plugin is registered, where plugins are to win."""
    if not options.has("enablePluginOverride"):
        return ()
    names = {creator.name for creator in dovetail.get_plugin_registry().all_creators}
    ops = [node.op_type for node in _load_model(path).graph.node]
    return tuple(dict.fromkeys(op for op in ops if op in names))


def find_bounds(options: Options, path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """The profiles to build with, and what was made up for them."""
    if options.profiles:
        return [bounds.complete() for bounds in options.profiles], []
    sizes = _read_inputs(path)
    given: Mapping[str, Any] = options.get("shapes", {})
    unknown = [name for name in given if name not in sizes]
    if unknown:
        raise InputError(
            f"the model has no input '{unknown[0]}'", where="--shapes", expected=", ".join(sizes) or "no inputs"
        )
    dynamic = {name: shape for name, shape in sizes.items() if shape is None or None in shape}
    if not dynamic and not given:
        return [], []
    shapes, notes = dict(given), []
    for name, shape in dynamic.items():
        if name not in shapes and shape is not None:
            shapes[name] = tuple(1 if size is None else size for size in shape)
            text = "x".join(map(str, shapes[name]))
            notes.append(
                f"Dynamic dimensions required for input: {name}, but no shapes were provided. "
                f"Automatically overriding shape to: {text}"
            )
    return [{name: shape for name, shape in shapes.items() if name in dynamic}], notes


def _load_model(path: Path) -> Any:
    """The model of a file, without data beside it."""
    data = read_bytes(path, MAX_MODEL_BYTES, follow=True)
    try:
        return ParsedModel(data, str(path)).proto
    except ValueError as error:
        kind = describe_start(data[:START_BYTES])
        raise InputError(
            "the file is no ONNX model",
            where="--onnx",
            got=f"{path}, {kind}" if kind else str(path),
            fix="--loadEngine runs a plan that was saved" if kind == "a plan" else "export the model to ONNX first",
        ) from error


def _read_inputs(path: Path) -> dict[str, tuple[int | None, ...] | None]:
    """The shape of each input of a model, None where a size is open."""
    graph = _load_model(path).graph
    held = {tensor.name for tensor in graph.initializer}
    found: dict[str, tuple[int | None, ...] | None] = {}
    for value in graph.input:
        tensor = value.type.tensor_type
        if value.name not in held:
            dims = [dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim]
            found[value.name] = tuple(dims) if tensor.HasField("shape") else None
    return found


def make_config(options: Options) -> Any:
    """The configuration that the flags describe."""
    config = dovetail.BuilderConfig()
    for name, flag in _FLAGS.items():
        if options.has(name):
            config.set_flag(flag)
    if options.has("noTF32"):
        config.clear_flag(dovetail.BuilderFlag.TF32)
    if options.get("sparsity", "disable") != "disable":
        config.set_flag(dovetail.BuilderFlag.SPARSE_WEIGHTS)
    for pool, text in options.get("memPoolSize", {}).items():
        config.set_memory_pool_limit(_choose(pool, _POOLS, "memPoolSize"), read_size(text))
    for word in options.get("preview", ()):
        config.set_preview_feature(_choose(word.lstrip("+-"), _PREVIEW, "preview"), not word.startswith("-"))
    if options.has("profilingVerbosity"):
        config.profiling_verbosity = _choose(options.get("profilingVerbosity"), _VERBOSITIES, "profilingVerbosity")
    config.avg_timing_iterations = options.get("avgTiming", config.avg_timing_iterations)
    config.builder_optimization_level = options.get("builderOptimizationLevel", config.builder_optimization_level)
    config.max_num_tactics = options.get("maxTactics", config.max_num_tactics)
    config.plugins_to_serialize = options.get("setPluginsToSerialize", [])
    config.timing_cache_path = options.get("timingCacheFile")
    config.providers = find_providers()
    config.provider_options = find_provider_options(options)
    return config


def _choose(text: str, known: Mapping[str, Any], flag: str) -> Any:
    if text not in known:
        raise UsageError("there is no such choice", where=f"--{flag}", expected=", ".join(known), got=text)
    return known[text]


def find_providers() -> list[str]:
    """CUDA where there is a device, then what is used where there is none."""
    has_device = has_provider("cuda") and bool(get_factory("cuda").devices())
    return [*(["cuda"] if has_device else []), *default_providers()]


def find_provider_options(options: Options) -> dict[str, dict[str, str]]:
    """The device that the flags name; none where there is no CUDA."""
    number = options.get("device", 0)
    if not number:
        return {}
    if "cuda" not in find_providers():
        raise UsageError("there is no CUDA device here", where="--device", got=number, fix="leave --device out")
    return {"cuda": {"device_id": str(number)}}


def _keep_timings(path: Path) -> None:
    """Have a file where no layer was timed, so that the next call finds one."""
    if not path.is_file():
        cache = dovetail.BuilderConfig().create_timing_cache(b"")
        write_file(path, bytes(cache.serialize()), option="--timingCacheFile")


# loading


def load_plan(options: Options, plan: bytes | None, logger: Any) -> Any:
    """The engine of a plan that was just built, or of the file that the flags name."""
    runtime = dovetail.Runtime(logger, provider_options=find_provider_options(options))
    runtime.capture_graphs = not options.has("noCudaGraph")
    if plan is not None:
        return runtime.deserialize_cuda_engine(plan)
    path = Path(options.values["loadEngine"])
    if not path.is_file():
        raise InputError("there is no such file", where="--loadEngine", got=str(path))
    return runtime.load_engine(path)
