"""Servers on a Ray cluster, from Python."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from dovetail.errors import InputError, ProviderError, UsageError
from dovetail_serve.addresses import check_options
from dovetail_serve.options import ServerOptions
from dovetail_serve.ray.cluster import import_ray
from dovetail_serve.ray.controller import Controller
from dovetail_serve.ray.options import RayOptions, check_ray_options
from dovetail_serve.ray.replica import ReplicaState

__all__ = ["Deployment", "deploy"]

_USUAL: Final = ServerOptions()
_LOOK_S: Final = 0.2


class Deployment:
    """Replicas that serve one folder of models; made by ``deploy``, and ended with the process at the latest."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def replicas(self) -> Sequence[ReplicaState | None]:
        """How each replica was at the last look; None for one that begins, or begins again."""
        return self._controller.states

    @property
    def http_urls(self) -> list[str]:
        """Where HTTP is, of the replicas that take requests."""
        return [state.http for state in self.replicas if state is not None and state.is_loaded and state.http]

    @property
    def grpc_addresses(self) -> list[str]:
        """Where gRPC is, of the replicas that take requests."""
        return [state.grpc for state in self.replicas if state is not None and state.is_loaded and state.grpc]

    def wait_until_ready(self, timeout_s: float = 120.0) -> None:
        """Wait until every replica takes requests.

        Raises:
            ProviderError: One cannot begin, or that takes longer.
        """
        end = time.monotonic() + timeout_s
        while not all(state is not None and state.is_loaded for state in self.replicas) or not self.replicas:
            for index, problem in self._controller.problems.items():
                raise ProviderError(f"it cannot begin: {problem}", where=f"replica {index}")
            if time.monotonic() > end:
                ready, count = len(self.http_urls), len(self.replicas)
                fix = "look at 'ray status': the cluster may lack the processors or GPUs that replicas ask for"
                what = f"{ready} of {count} replicas take requests after {timeout_s:g} s"
                raise ProviderError(what, where="deployment", fix=fix)
            time.sleep(_LOOK_S)

    def update(self, model: str) -> None:
        """Have one replica after the other load a model anew; no request fails meanwhile.

        Files that are replaced in the folder are found without it.

        Raises:
            ProviderError: A replica cannot load it; it and the others after it go on with what they have.
        """
        problem = self._controller.update(model)
        if problem is not None:
            raise ProviderError(f"the model cannot be updated: {problem}", where=f"model '{model}'")

    def scale(self, replicas: int) -> None:
        """Have so many replicas; those that are too many drain first.

        Raises:
            UsageError: There would be none.
        """
        if replicas < 1:
            raise UsageError("there must be at least one replica", where="replicas", got=replicas)
        self._controller.scale(replicas)

    def stop(self) -> bool:
        """Drain all replicas and end them; whether every accepted request was answered."""
        return self._controller.stop()


def deploy(
    models: str | Path,
    options: ServerOptions = _USUAL,
    *,
    replicas: int = 1,
    max_replicas: int | None = None,
    num_cpus: float = 1.0,
    num_gpus: float = 0.0,
    placement: RayOptions | None = None,
) -> Deployment:
    """Serve a folder of models by actors of the cluster that Ray is connected to; returns at once.

    Each replica listens at ports of its own: those of the options and two more for each, or any with port 0.

    >>> with connecting("auto"), deploy("models", replicas=2) as deployment:  # doctest: +SKIP
    ...     deployment.wait_until_ready()
    ...     print(deployment.http_urls)

    Args:
        models: The folder, which every node of the cluster sees.
        options: Those of each server.
        replicas: How many replicas there are at least.
        max_replicas: How many there are when requests wait.
        num_cpus: Processors of each.
        num_gpus: GPUs of each.
        placement: More of these, instead.

    Raises:
        DovetailError: Options can never be right, or there is no such folder.
        UsageError: Ray is not connected.
    """
    chosen = placement or RayOptions(replicas=replicas, max_replicas=max_replicas, num_cpus=num_cpus, num_gpus=num_gpus)
    check_options(options)
    check_ray_options(chosen)
    folder = Path(models).resolve()
    if not folder.is_dir():
        raise InputError("there are no models", where=f"'{models}'", expected="a folder that every node sees")
    if not import_ray().is_initialized():
        raise UsageError("Ray is not connected", fix="call ray.init(), or use dovetail_serve.ray.connecting(address)")
    controller = Controller(folder, options, chosen)
    controller.start()
    return Deployment(controller)
