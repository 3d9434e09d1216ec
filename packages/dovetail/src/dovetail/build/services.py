"""What providers get to build with: one context for each partition or node, from what a build has."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import onnx_ir as ir

from dovetail.build.built_checks import StepOwner, check_workspace
from dovetail.build.config import BuilderConfig, BuilderFlag, MemoryPoolType
from dovetail.build.progress import Phases
from dovetail.build.provider_progress import ProviderProgress
from dovetail.build.tune.providers import ProviderTuner, TuningTables
from dovetail.build.tune.tuner import CandidateTuner
from dovetail.errors import DovetailError, ProviderError, TimingCacheError
from dovetail.loggers import ILogger
from dovetail.provider.calls import call
from dovetail.provider.interfaces import BuildContext, BuiltPartition, Provider, ShapeRange

__all__ = ["BuildServices", "BuiltT", "run_reference"]

BuiltT = TypeVar("BuiltT")


class BuildServices:
    """Makes the contexts of one build, and ends what they share.

    Args:
        config: Flags and limits.
        logger: Told of what goes wrong.
        tuner: Who times the candidates of providers.
        keep: Names of weights that may be replaced in a loaded engine.
        aliases: Output -> the input whose memory it is to get.
        is_open: Whether shapes have no bounds.
        num_threads: How many threads providers may compile in; 0 for one a core.
        phases: Told how far providers are.
    """

    def __init__(
        self,
        config: BuilderConfig,
        logger: ILogger,
        tuner: CandidateTuner,
        *,
        keep: frozenset[str] = frozenset(),
        aliases: Mapping[str, str] | None = None,
        is_open: bool = False,
        num_threads: int = 0,
        phases: Phases | None = None,
    ) -> None:
        self._config = config
        self._logger = logger
        self._keep = keep
        self.aliases = dict(aliases or {})
        """Output -> the input whose memory it is to get."""
        self._is_open = is_open
        self._phases = phases or Phases()
        count = num_threads or _count_cores()
        self._workers = ThreadPoolExecutor(max_workers=count, thread_name_prefix="dovetail-compile")
        self._tuner = tuner
        self.tables = TuningTables()
        """What providers asked the tuner, for the plan."""

        self._stop: DovetailError | None = None
        """Why the build is to stop, which is not the fault of what a provider builds."""

    def build(
        self,
        provider: Provider,
        callback: str,
        function: Callable[[Any, BuildContext], BuiltT],
        subject: Any,
        *,
        name: str,
        profile: int = 0,
        shapes: Mapping[str, ShapeRange] | None = None,
    ) -> BuiltT:
        """Have a provider build something, and stop the build where a report was answered so.

        Args:
            provider: Who builds.
            callback: What errors call the function.
            function: Builds.
            subject: What is built.
            name: What progress is reported under.
            profile: The profile that it is built for.
            shapes: By name, those of its inputs.
        """
        with ProviderProgress(self._phases, f"{provider.id}: {name}") as progress:
            context = self._make_context(provider, progress, profile, shapes or {})
            try:
                return call(provider.id, callback, function, subject, context)
            except TimingCacheError as error:
                self._stop = error
                raise
            finally:
                if progress.failure is not None:
                    self._stop = progress.failure
                    raise progress.failure

    def refuse_stop(self, error: DovetailError) -> None:
        """Raise an error again that says that the build is to stop; others are what a provider cannot build."""
        if error is self._stop:
            raise error

    def _make_context(
        self, provider: Provider, progress: ProviderProgress, profile: int, shapes: Mapping[str, ShapeRange]
    ) -> BuildContext:
        config = self._config
        return BuildContext(
            device=provider.device,
            tuner=ProviderTuner(provider, self._tuner, self.tables, profile=profile),
            reference=run_reference,
            logger=self._logger,
            workers=self._workers,
            profile=profile,
            shapes=shapes,
            flags=frozenset(flag.name for flag in BuilderFlag if config.get_flag(flag)),
            keep=self._keep,
            aliases=self.aliases,
            is_open=self._is_open,
            is_strict=config.strict,
            workspace_limit_bytes=config.get_memory_pool_limit(MemoryPoolType.WORKSPACE),
            memory_limit_bytes=_memory_limit(provider),
            candidate_bytes=config.candidate_bytes,
            report=progress.report,
        )

    def check_workspace(self, provider: Provider, size_bytes: int, name: str) -> int:
        """The scratch memory that a step asks for, which must be within the limit of the build."""
        limit = self._config.get_memory_pool_limit(MemoryPoolType.WORKSPACE)
        return check_workspace(StepOwner(provider=provider, name=name), size_bytes, limit)

    def check_candidates(self, provider: Provider, built: BuiltPartition, name: str) -> None:
        """Refuse candidates that nobody asked for, or more than the build allows."""
        size, limit = 0 if built.candidates is None else built.candidates.size_bytes, self._config.candidate_bytes
        if size > limit:
            raise ProviderError(
                "a partition carries more candidates than the build allows",
                where=f"provider '{provider.id}', step '{name[:200]}'",
                expected=f"at most {limit} bytes",
                got=size,
            )

    def close(self) -> None:
        """End the threads."""
        self._workers.shutdown(cancel_futures=True)


def _count_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _memory_limit(provider: Provider) -> int | None:
    limits = [n for n in (provider.budget_bytes, provider.device.memory_bytes) if n is not None]
    return min(limits, default=None)


def run_reference(model: ir.Model, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Run a model with the kernels of ``cpu``."""
    from dovetail.api import compile as compile_model  # the front door is above this room

    results = compile_model(ir.to_proto(model), providers=["cpu"])(**inputs)
    names = [value.name or "" for value in model.graph.outputs]
    return {names[0]: results} if len(names) == 1 else dict(results)
