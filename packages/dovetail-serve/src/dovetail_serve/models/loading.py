"""Makes a loaded model of the files of a version: the plan, the engine, contexts, warm-up and measurement."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import dovetail
from dovetail import Engine
from dovetail.errors import DovetailError, PlanError, PlanTrustError, PluginError
from dovetail.loggers import ILogger, Severity
from dovetail.provider.defaults import default_providers
from dovetail.provider.loader import get_factory
from dovetail.units import format_time
from dovetail_serve.errors import ServeError
from dovetail_serve.models.choices import choose_batching, is_fast_enough_for_loop, longest_on_loop
from dovetail_serve.models.counters import RunCounters
from dovetail_serve.models.loaded import ModelParts
from dovetail_serve.models.measuring import Measurement, measure_batches, measure_hop
from dovetail_serve.models.padding import Padding
from dovetail_serve.models.pending import PendingRequest
from dovetail_serve.models.ports import ModelPorts, UnservableError
from dovetail_serve.models.runner import Runner
from dovetail_serve.models.samples import guess_shapes, make_sample, read_sample
from dovetail_serve.protocol.requests import InferRequest
from dovetail_serve.repository.plans import PlanCopy, provide_plan
from dovetail_serve.repository.problems import ModelConfigError, RepositoryError
from dovetail_serve.repository.scan import ModelFiles, VersionFiles
from dovetail_serve.repository.settings import ModelSettings

__all__ = ["LoadOptions", "load_parts"]

Arrays = tuple[Any, ...]
_LOG: Final = logging.getLogger("dovetail_serve.models")
_one_measurement: Final = threading.Lock()
_LONGEST_TURN_S: Final = 10.0
_LOAD_LIBRARY: Final = "registry.load_library(path)"
"""What a missing plugin is mended with in Python, where there is no command line."""
_LEVELS: Final = {Severity.VERBOSE: logging.DEBUG, Severity.INFO: logging.INFO, Severity.WARNING: logging.WARNING}


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """What the server lets plans do, and where it keeps copies of them."""

    scratch: Path
    allow_host_code: bool = False


class _EngineLog(ILogger):
    """Messages of builds and engines in the log of the server."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self._where = where

    def log(self, severity: Severity, msg: str) -> None:
        _LOG.log(_LEVELS.get(severity, logging.ERROR), "%s: %s", self._where, msg)


def load_parts(model: ModelFiles, version: VersionFiles, settings: ModelSettings, options: LoadOptions) -> ModelParts:
    """Load, warm and measure one version; it takes as long as it takes, so call it on a thread without a loop.

    Raises:
        DovetailError: It cannot be built, loaded or served; the message says why.
    """
    logger = _EngineLog(f"{model.name}/{version.version}")
    settings = _add_threads(settings, f"{model.name}/config.toml")
    plan = provide_plan(model, version, settings, options.scratch, logger)
    try:
        engine = dovetail.load(
            plan.path,
            host_code=options.allow_host_code,
            provider_options=settings.provider_options,
            logger=logger,
        )
    except PlanTrustError as error:
        plan.remove()
        fix = "if you trust whoever made the plan, start the server with --allow-host-code"
        raise RepositoryError(error.what, where=f"{model.name}/{version.version}", fix=fix) from error
    except (PlanError, PluginError) as error:
        plan.remove()
        raise _retell(error, plan.path, version.source or plan.path) from error
    except BaseException:
        plan.remove()
        raise
    try:
        return _make_parts(model, version, settings, engine, plan)
    except BaseException:
        engine.close()
        plan.remove()
        raise


def _retell(error: DovetailError, copy: Path, source: Path) -> RepositoryError:
    """The same error with the file of the repository in place of its copy, and the option of the server as the fix."""
    where = None if error.where is None else error.where.replace(str(copy), str(source))
    is_missing = error.fix is not None and _LOAD_LIBRARY in error.fix
    fix = "start the server with --plugins and the library that has it" if is_missing else error.fix
    return RepositoryError(error.what, where=where, expected=error.expected, got=error.got, fix=fix)


def _add_threads(settings: ModelSettings, where: str) -> ModelSettings:
    """The number of threads as an option of each provider that has it."""
    if not settings.threads:
        return settings
    options = {name: dict(chosen) for name, chosen in settings.provider_options.items()}
    names = dict.fromkeys([*(settings.build.providers or default_providers()), *options])
    taking = [name for name in names if "threads" in getattr(get_factory(name), "options", {})]
    if not taking:
        raise ModelConfigError(
            "no provider of the model has threads of its own",
            where=f"{where}, 'threads'",
            got=", ".join(names),
            fix="leave it out, or use an option of the provider in [provider_options]",
        )
    for name in taking:
        options.setdefault(name, {}).setdefault("threads", str(settings.threads))
    return replace(settings, provider_options=options)


def _make_parts(
    model: ModelFiles, version: VersionFiles, settings: ModelSettings, engine: Engine, plan: PlanCopy
) -> ModelParts:
    ports = ModelPorts.of(engine)
    if settings.max_batch_size:
        ports.require_samples()
        _require_profile(engine, settings.max_batch_size)
    padding = Padding(ports, settings.padding)
    make_runner = partial(Runner, model.name, version.version, engine, ports, padding)
    runners = [make_runner() for _ in range(settings.instances)]
    warm = [(read_sample(each, i, ports, model.folder), each.count) for i, each in enumerate(settings.warmup)]
    with _measuring_alone():
        sample, problem = _find_sample(engine, ports, [arrays for arrays, _ in warm], runners[0])
        if sample is not None and settings.max_batch_size > 1:
            _require_together(runners[0], sample)
        measured = Measurement(problem=problem) if sample is None else _measure(runners[0], sample, settings)
        hop_ns = measure_hop()
    is_fast = is_fast_enough_for_loop(settings, measured, hop_ns)
    loop_runner = make_runner() if is_fast else None
    _warm([*runners, *([] if loop_runner is None else [loop_runner])], warm, sample)
    return ModelParts(
        name=model.name,
        version=version.version,
        engine=engine,
        plan=plan,
        ports=ports,
        settings=settings,
        padding=padding,
        runners=tuple(runners),
        loop_runner=loop_runner,
        loop_bytes=0 if sample is None else sum(array.nbytes for array in sample),
        loop_ns=longest_on_loop(hop_ns),
        batching=choose_batching(settings, measured),
        note=_describe_threads(measured, hop_ns, is_on_loop=is_fast),
    )


@contextmanager
def _measuring_alone() -> Iterator[None]:
    """Let one model be measured at a time; one that hangs in its runs does not hold up the others for ever."""
    has_turn = _one_measurement.acquire(timeout=_LONGEST_TURN_S)
    try:
        yield
    finally:
        if has_turn:
            _one_measurement.release()


def _describe_threads(measured: Measurement, hop_ns: int, *, is_on_loop: bool) -> str:
    if 1 not in measured.times_ns:
        return "runs on threads of its own"
    times = f"a run takes {format_time(measured.times_ns[1] / 1e3)}, a change of threads {format_time(hop_ns / 1e3)}"
    return f"runs on {'the thread of the event loop' if is_on_loop else 'threads of its own'}: {times}"


def _require_profile(engine: Engine, max_batch_size: int) -> None:
    """Check that the plan takes batches of the size that the config allows."""
    profiles = engine.manifest.profiles
    if not profiles:
        return
    sizes = [min(bounds[2][0] for bounds in profile.shapes.values()) for profile in profiles if profile.shapes]
    most = max(sizes, default=max_batch_size)
    if max_batch_size > most:
        raise UnservableError(
            "the plan is not built for so many samples",
            where="config.toml, 'max_batch_size'",
            expected=f"at most {most}",
            got=max_batch_size,
            fix="lower it, or build the plan with larger shapes",
        )


def _require_together(runner: Runner, sample: Arrays) -> None:
    """Check that two requests run as one; later, those that do not are run alone and nobody would notice."""
    one = tuple(array[:1] for array in sample)
    try:
        runner.run_together([_make_pending(one), _make_pending(one)])
    except Exception as error:
        reason = error.what if isinstance(error, DovetailError) else type(error).__name__
        raise UnservableError(
            f"two requests do not run together: {reason}",
            where="config.toml, 'max_batch_size'",
            fix="leave max_batch_size out, or add a [[warmup]] of shapes that the model takes",
        ) from error


def _find_sample(
    engine: Engine, ports: ModelPorts, given: Sequence[Arrays], runner: Runner
) -> tuple[Arrays | None, str]:
    """What to measure with: the first sample of the config, or a made-up one that the model takes."""
    if given:
        return given[0], ""
    shapes = guess_shapes(engine, ports)
    if shapes is None:
        return None, "shapes cannot be made up for its inputs; add [[warmup]] to config.toml"
    sample = make_sample(ports.inputs, shapes)
    error = _try(runner, sample)
    if error is not None:
        _LOG.info("a made-up sample was refused", exc_info=error)
        return None, "it does not take made-up inputs; add [[warmup]] to config.toml"
    return sample, ""


def _measure(runner: Runner, sample: Arrays, settings: ModelSettings) -> Measurement:
    """Time requests of one sample, alone and together."""
    most = settings.max_batch_size
    one = tuple(array[:1] for array in sample) if most else sample

    def run(count: int) -> None:
        batch = [_make_pending(one) for _ in range(count)]
        runner.run(batch)
        for pending in batch:
            if pending.error is not None:
                raise pending.error

    measured = measure_batches(run, most)
    runner.counters = RunCounters()
    return measured


def _warm(runners: Sequence[Runner], given: Sequence[tuple[Arrays, int]], sample: Arrays | None) -> None:
    """Run every context on what the config names, or else on the made-up sample.

    Raises:
        ServeError: A sample of the config fails.
    """
    for runner in runners:
        for arrays, count in given or ([] if sample is None else [(sample, 1)]):
            for _ in range(count):
                error = _try(runner, arrays)
                if error is not None:
                    raise UnservableError(f"the warm-up fails: {error}", where="config.toml, 'warmup'")
        runner.counters = RunCounters()


def _try(runner: Runner, arrays: Arrays) -> ServeError | None:
    pending = _make_pending(arrays)
    runner.run((pending,))
    return pending.error


def _make_pending(arrays: Arrays) -> PendingRequest:
    samples = arrays[0].shape[0] if arrays and arrays[0].ndim else 1
    return PendingRequest(InferRequest("", {}), arrays, samples, None, time.perf_counter_ns())
