"""A server as an actor of Ray: it listens at ports of its own, and Ray is not in the path of its requests."""

from __future__ import annotations

import dataclasses
import logging
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dovetail.errors import DovetailError
from dovetail_serve.addresses import check_options, format_address, read_tls
from dovetail_serve.loop_thread import LoopThread
from dovetail_serve.options import ServerOptions
from dovetail_serve.protocol.documents import IndexEntry
from dovetail_serve.ray.cluster import import_ray, locate_plugins
from dovetail_serve.running import RunningServer

__all__ = ["Replica", "ReplicaState", "offset_ports"]

_ANY_ADDRESS: Final = ("0.0.0.0", "::", "")  # noqa: S104 - to be told apart, not to bind


@dataclass(frozen=True, kw_only=True)
class ReplicaState:
    """How a replica is."""

    index: int
    node: str
    pid: int
    http: str | None
    """Where it listens, such as ``http://10.0.0.7:8000``."""
    grpc: str | None
    is_loaded: bool
    """Whether each model has been tried."""
    models: tuple[IndexEntry, ...]
    waiting: int
    """Requests in queues."""
    answered: int
    """Requests since the replica began, with those that failed."""


class Replica:
    """Serves a folder of models for as long as the actor lives.

    Args:
        index: Its number; ports that are given are those of number 0, and each replica has the next two.
        models: The folder, which the node sees.
        options: Those of the server.
        plugins: Plugin libraries.
    """

    def __init__(self, index: int, models: str, options: ServerOptions, plugins: tuple[str, ...] = ()) -> None:
        logging.basicConfig(level=logging.INFO)
        _load_plugins(plugins)
        self._index = index
        self._options = offset_ports(options, index)
        check_options(self._options)
        self._thread = LoopThread("dovetail-replica")
        self._running = self._thread.run(_start(Path(models), self._options))

    def observe(self) -> ReplicaState:
        """How it is now."""
        return self._thread.run(self._observe())

    async def _observe(self) -> ReplicaState:
        service = self._running.service
        statistics = service.statistics()
        return ReplicaState(
            index=self._index,
            node=socket.gethostname(),
            pid=os.getpid(),
            http=self._address("http"),
            grpc=self._address("grpc"),
            is_loaded=service.is_ready,
            models=tuple(service.index()),
            waiting=sum(each.queue_size for each in statistics),
            answered=sum(each.success.count + each.fail.count for each in statistics),
        )

    def _address(self, name: str) -> str | None:
        listener = self._running.listeners.get(name)
        if listener is None:
            return None
        is_any = self._options.host in _ANY_ADDRESS
        host = import_ray().util.get_node_ip_address() if is_any else self._options.host
        address = format_address(host, listener.port)
        scheme = "http" if self._options.tls_certificate is None else "https"
        return f"{scheme}://{address}" if name == "http" else address

    def apply(self, model: str, *, is_there: bool) -> str | None:
        """Load a model whose files have changed, or unload it where they are gone; why it cannot be, if so.

        Requests go on meanwhile: those that were accepted end in the engine that they began in.
        """
        service = self._running.service
        try:
            self._thread.run(service.load(model) if is_there else service.unload(model))
        except DovetailError as error:
            return str(error)
        return None

    def stop(self) -> bool:
        """Drain and end; whether every request that was accepted has been answered."""
        return self._thread.run(self._running.stop())


async def _start(models: Path, options: ServerOptions) -> RunningServer:
    running = RunningServer(models, options, read_tls(options))
    # Who balances by connections must not find a replica that has no models yet.
    await running.start(load_first=True)
    return running


def _load_plugins(plugins: tuple[str, ...]) -> None:
    from dovetail.cli.targets import load_libraries
    from dovetail.plugin.registry import get_plugin_registry

    load_libraries(locate_plugins(plugins), get_plugin_registry())


def offset_ports(options: ServerOptions, index: int) -> ServerOptions:
    """The options of one replica: its ports, and files that it is told to load.

    >>> offset_ports(ServerOptions(), 2).http_port, offset_ports(ServerOptions(grpc_port=0), 2).grpc_port
    (8004, 0)
    """
    return dataclasses.replace(
        options,
        http_port=_offset(options.http_port, index),
        grpc_port=_offset(options.grpc_port, index),
        poll_s=0.0,  # whoever deployed tells replicas of changes, one after the other
    )


def _offset(port: int | None, index: int) -> int | None:
    return port + 2 * index if port else port
