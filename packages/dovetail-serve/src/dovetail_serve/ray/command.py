"""``dovetail serve --ray``: the same server as replicas on a cluster, until a signal ends them."""

from __future__ import annotations

import argparse
import contextlib
import logging
import queue
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from dovetail.cli.answers import Document, Reply, dump_document, show_answer
from dovetail.cli.options import non_negative_float, positive_float, positive_int
from dovetail.cli.screen import Screen
from dovetail.errors import UsageError
from dovetail_serve.options import ServerOptions

if TYPE_CHECKING:
    from dovetail_serve.ray.deployment import Deployment

__all__ = ["declare_ray", "describe_deployment", "is_on_ray", "serve_on_ray"]

_LOG: Final = logging.getLogger("dovetail_serve.command")
_EXIT_LOST: Final = 4
"""Accepted requests were left without an answer."""
_ONLY_RAY: Final = ("replicas", "max_replicas", "queue_per_replica", "cpus", "gpus", "endpoints")


def declare_ray(group: argparse._ArgumentGroup) -> None:
    """Declare what a cluster adds."""
    group.add_argument(
        "--ray", metavar="ADDRESS", help="serve on this cluster: host:port, auto, or local for one of its own"
    )
    group.add_argument("--replicas", type=positive_int, metavar="N", help="servers at least (1)")
    group.add_argument("--max-replicas", type=positive_int, metavar="N", help="servers when requests wait (as many)")
    group.add_argument(
        "--queue-per-replica",
        type=positive_float,
        metavar="N",
        help="requests that wait for each before there is one more (8)",
    )
    group.add_argument("--cpus", type=non_negative_float, metavar="N", help="processors of each (1)")
    group.add_argument("--gpus", type=non_negative_float, metavar="N", help="GPUs of each (0)")
    group.add_argument("--endpoints", type=Path, metavar="FILE", help="keep a JSON list there of where replicas listen")


def is_on_ray(args: argparse.Namespace) -> bool:
    """Whether a cluster is asked for.

    Raises:
        UsageError: Options for one are given without it.
    """
    for name in _ONLY_RAY:
        if args.ray is None and getattr(args, name) is not None:
            where = f"--{name.replace('_', '-')}"
            raise UsageError("this is for replicas on a cluster", where=where, fix="add --ray ADDRESS")
    return args.ray is not None


def serve_on_ray(args: argparse.Namespace, options: ServerOptions) -> Reply:
    """Serve until a signal comes; the answer is shown when every replica takes requests."""
    from dovetail_serve.ray.cluster import connecting
    from dovetail_serve.ray.deployment import deploy
    from dovetail_serve.ray.options import RayOptions

    placement = RayOptions(
        replicas=args.replicas or 1,
        max_replicas=args.max_replicas,
        num_cpus=1.0 if args.cpus is None else args.cpus,
        num_gpus=args.gpus or 0.0,
        queue_per_replica=args.queue_per_replica or 8.0,
        plugins=tuple(args.plugins),
    )
    # Ray takes signals for itself when it connects, so ours are caught after that.
    with connecting(args.ray, plugins=args.plugins), _catching_signals() as signals:
        deployment = deploy(args.models, options, placement=placement)
        try:
            deployment.wait_until_ready()
            reply = Reply(document=describe_deployment(args.models, deployment), show=_show)
            if args.json or not args.quiet:
                show_answer(reply, as_json=args.json)
            _LOG.info("%s: draining", _wait(deployment, signals, args.endpoints))
        finally:
            is_drained = deployment.stop()
    return reply._replace(is_shown=True, exit_code=0 if is_drained else _EXIT_LOST)


@contextmanager
def _catching_signals() -> Iterator[queue.SimpleQueue[str]]:
    """Signals as names in a queue; the second one ends the process at once."""
    names: queue.SimpleQueue[str] = queue.SimpleQueue()
    before: dict[signal.Signals, Any] = {}

    def take(number: int, frame: FrameType | None) -> None:
        names.put(signal.Signals(number).name)
        for each in before:
            signal.signal(each, signal.SIG_DFL)

    before.update({each: signal.signal(each, take) for each in (signal.SIGTERM, signal.SIGINT)})
    try:
        yield names
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _wait(deployment: Deployment, signals: queue.SimpleQueue[str], endpoints: Path | None) -> str:
    """The signal that came; until then the file has the replicas that take requests."""
    from dovetail.files import write_file

    last = b""
    while True:
        where = {"http": deployment.http_urls, "grpc": deployment.grpc_addresses}
        content = dump_document(where).encode() + b"\n"
        if endpoints is not None and content != last:
            write_file(endpoints, content, option="--endpoints")
            last = content
        with contextlib.suppress(queue.Empty):
            return signals.get(timeout=1.0)


def describe_deployment(models: str, deployment: Deployment) -> dict[str, Any]:
    """Where replicas listen, and what they serve."""
    return {
        "folder": models,
        "replicas": [
            {
                "node": state.node,
                "pid": state.pid,
                "http": state.http,
                "grpc": state.grpc,
                "models": [
                    {"name": each.name, "version": each.version, "state": each.state, "reason": each.reason}
                    for each in state.models
                ],
            }
            for state in deployment.replicas
            if state is not None
        ],
    }


def _show(document: Document, screen: Screen) -> None:
    screen.title(f"{document['folder']}: {len(document['replicas'])} replicas take requests")
    rows = [
        (
            each["node"],
            each["http"] or "-",
            each["grpc"] or "-",
            f"{sum(model['state'] == 'READY' for model in each['models'])} of {len(each['models'])}",
        )
        for each in document["replicas"]
    ]
    screen.table(("node", "HTTP", "gRPC", "models ready"), rows)
    screen.line("Ctrl-C ends them after the requests that were accepted")
