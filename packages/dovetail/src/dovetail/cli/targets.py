"""From the words of a command line to an engine: a plan is loaded, a model is built."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.cli.settings import BuildSettings, apply_provider_options, read_settings
from dovetail.cli.shapes import ShapeBounds
from dovetail.cli.streams import messages
from dovetail.errors import InputError, UsageError
from dovetail.escapes import escape
from dovetail.file_kinds import START_BYTES, looks_like_model, looks_like_plan
from dovetail.files import open_regular
from dovetail.loggers import ILogger, Severity

if TYPE_CHECKING:
    from dovetail.build.progress import IProgressMonitor
    from dovetail.plugin.registry import PluginRegistry
    from dovetail.runtime.engine import Engine
    from dovetail.runtime.loading import Runtime

__all__ = [
    "StderrLogger",
    "is_plan",
    "load_engine",
    "load_libraries",
    "make_registry",
    "open_engine",
    "reopen_engine",
    "require_file",
]


class StderrLogger(ILogger):
    """Writes messages as the command line does: the severity in words, then the text; no warning twice."""

    def __init__(self, min_severity: Severity = Severity.WARNING) -> None:
        super().__init__()
        self.min_severity = min_severity
        self.warnings: list[str] = []

    def log(self, severity: Severity, msg: str) -> None:
        """Take one message; warnings are kept too."""
        if severity == Severity.WARNING:
            if msg in self.warnings:
                return
            self.warnings.append(msg)
        if severity <= self.min_severity:
            print(f"{Severity(severity).name.lower().replace('_', ' ')}: {escape(msg)}", file=messages())


def open_engine(
    args: argparse.Namespace,
    shapes: Mapping[str, ShapeBounds],
    logger: ILogger,
    *,
    detailed: bool = False,
    monitor: Callable[[], IProgressMonitor] | None = None,
) -> Engine:
    """The engine that a target names: loaded from a plan, or built from a model with these shapes.

    Args:
        args: The command line.
        shapes: Shapes of inputs, for a model.
        logger: Where messages go.
        detailed: Whether the inspector of a model that is built shows everything.
        monitor: Makes who is told of the phases of a build.
    """
    path, settings = require_file(args.target), read_settings(args)
    apply_provider_options(args.provider_option)
    if not is_plan(path):
        engine = _compile_model(path, args, shapes, settings, logger, detailed=detailed, monitor=monitor)
        _tell_idle_options(args, engine, logger)
        return engine
    if settings._replace(strict=False) != BuildSettings():
        raise UsageError(
            "a plan is built already",
            where=f"'{args.target}'",
            expected="a model, for --providers, --rivals, --layer-provider, --off and --override",
            fix="build the plan again with these options",
        )
    engine = load_engine(path, args, logger)
    _tell_idle_options(args, engine, logger)
    return engine


def load_engine(path: Path, args: argparse.Namespace, logger: ILogger) -> Engine:
    """The engine of a plan, with the plugins and the trust that a command line says."""
    return _make_runtime(args, logger).load_engine(path)


def _tell_idle_options(args: argparse.Namespace, engine: Engine, logger: ILogger) -> None:
    """Tell of options for providers that run nothing of an engine; a strict command refuses them."""
    used = sorted({device.provider for device in engine.manifest.devices})
    for text in args.provider_option:
        provider = text.partition("=")[0].rpartition(".")[0]
        if provider not in used:
            what = f"the option {text} has no effect: '{provider}' runs nothing of this engine"
            if args.strict:
                engine.close()
                raise UsageError(what, where="--provider-option", expected=f"one of {', '.join(used)}")
            logger.log(Severity.WARNING, f"{what}, which is on {', '.join(used)}")


def reopen_engine(args: argparse.Namespace, engine: Engine) -> Engine:
    """Another engine from the same plan, with the options that providers have now."""
    path = require_file(args.target)
    runtime = _make_runtime(args, StderrLogger())
    return runtime.load_engine(path) if is_plan(path) else runtime.deserialize_cuda_engine(engine.serialize())


def _make_runtime(args: argparse.Namespace, logger: ILogger) -> Runtime:
    from dovetail.runtime.loading import Runtime

    runtime = Runtime(logger)
    runtime.engine_host_code_allowed = args.host_code
    runtime.engine_device_code_allowed = not args.no_device_code
    load_libraries(args.plugins, runtime.get_plugin_registry())
    return runtime


def _compile_model(
    path: Path,
    args: argparse.Namespace,
    shapes: Mapping[str, ShapeBounds],
    settings: BuildSettings,
    logger: ILogger,
    *,
    detailed: bool,
    monitor: Callable[[], IProgressMonitor] | None,
) -> Engine:
    from dovetail import api
    from dovetail.build.config import BuilderConfig, ProfilingVerbosity

    config = settings.apply(BuilderConfig())
    config.progress_monitor = None if monitor is None else monitor()
    if detailed:
        config.profiling_verbosity = ProfilingVerbosity.DETAILED
    return api.compile(
        path,
        shapes=shapes or None,
        config=config,
        registry=make_registry(args.plugins),
        override=settings.override,
        logger=logger,
    )


def make_registry(libraries: Sequence[str]) -> PluginRegistry:
    """A registry with the plugins of these libraries, which asks the global one for others."""
    from dovetail.plugin.registry import PluginRegistry, get_plugin_registry

    registry = PluginRegistry(parent=get_plugin_registry())
    load_libraries(libraries, registry)
    return registry


def load_libraries(paths: Sequence[str], registry: PluginRegistry) -> None:
    """Import plugin libraries into a registry, each once; ``@name`` is one that an installed package offers."""
    for path in dict.fromkeys(paths):
        if path.startswith("@"):
            registry.load_entry_points([path[1:]])
        else:
            registry.load_library(path)


def require_file(text: str, *, expected: str = "a plan or an ONNX model") -> Path:
    """The path of a file that is there and can be opened; ``expected`` says what it is a file of."""
    path = Path(text)
    try:
        is_there, is_folder, is_regular = path.exists(), path.is_dir(), path.is_file()
    except (OSError, ValueError) as error:
        raise InputError(f"the path cannot be used: {error}", where=ascii(text)) from None
    if not is_there:
        raise InputError("there is no such file", where=f"'{text}'", fix="check the path")
    if not is_regular:  # a pipe would keep us waiting, and plans are mapped
        kind = "a folder" if is_folder else "not a regular file"
        raise InputError(f"this is {kind}", where=f"'{text}'", expected=expected)
    return path


def is_plan(path: Path) -> bool:
    """Whether a file looks like a plan: by what it starts with, and for files too short to tell, by its name."""
    with open_regular(path, follow=True) as file:
        start = file.read(START_BYTES)
    return looks_like_plan(start) or (path.suffix == ".plan" and not looks_like_model(start))
