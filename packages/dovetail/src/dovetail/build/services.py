"""What providers get to build with: one context for each partition or node, from what a build has."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import onnx_ir as ir

from dovetail.build.config import BuilderConfig, BuilderFlag, MemoryPoolType
from dovetail.build.provider_tuner import ProviderTuner
from dovetail.loggers import ILogger
from dovetail.provider.interfaces import BuildContext, Provider, ShapeRange

__all__ = ["BuildServices"]


class BuildServices:
    """Makes the contexts of one build, and ends what they share.

    Args:
        config: Flags and limits.
        logger: Told of what goes wrong.
        keep: Names of weights that may be replaced in a loaded engine.
        is_open: Whether shapes have no bounds.
        num_threads: How many threads providers may compile in.
    """

    def __init__(
        self,
        config: BuilderConfig,
        logger: ILogger,
        *,
        keep: frozenset[str] = frozenset(),
        is_open: bool = False,
        num_threads: int = 1,
    ) -> None:
        self._config = config
        self._logger = logger
        self._keep = keep
        self._is_open = is_open
        self._workers = ThreadPoolExecutor(max_workers=num_threads, thread_name_prefix="dovetail-compile")
        self._tuners: dict[str, ProviderTuner] = {}

    def make_context(
        self, provider: Provider, *, profile: int = 0, shapes: Mapping[str, ShapeRange] | None = None
    ) -> BuildContext:
        """The context for something that this provider builds."""
        config = self._config
        return BuildContext(
            device=provider.device,
            tuner=self._find_tuner(provider),
            reference=run_reference,
            logger=self._logger,
            workers=self._workers,
            profile=profile,
            shapes=shapes or {},
            flags=frozenset(flag.name for flag in BuilderFlag if config.get_flag(flag)),
            keep=self._keep,
            is_open=self._is_open,
            is_strict=config.strict,
            workspace_limit_bytes=config.get_memory_pool_limit(MemoryPoolType.WORKSPACE),
            memory_limit_bytes=provider.budget_bytes,
        )

    def _find_tuner(self, provider: Provider) -> ProviderTuner:
        if provider.id not in self._tuners:
            self._tuners[provider.id] = ProviderTuner(provider, timeout_s=self._config.tactic_timeout_s)
        return self._tuners[provider.id]

    def close(self) -> None:
        """End the threads and the streams."""
        self._workers.shutdown(cancel_futures=True)
        for tuner in self._tuners.values():
            tuner.close()


def run_reference(model: ir.Model, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Run a model with the kernels of ``cpu``."""
    from dovetail.api import compile as compile_model  # the front door is above this room

    results = compile_model(ir.to_proto(model), providers=["cpu"])(**inputs)
    names = [value.name or "" for value in model.graph.outputs]
    return {names[0]: results} if len(names) == 1 else dict(results)
