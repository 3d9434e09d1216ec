"""``dovetail serve``: a folder of models over HTTP and gRPC, until a signal ends it."""

from __future__ import annotations

import argparse
import logging
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from dovetail.cli.answers import Document, Reply, show_answer
from dovetail.cli.options import add_plugins, finish_command, non_negative_float, positive_float, positive_int
from dovetail.cli.screen import Screen
from dovetail.cli.targets import load_libraries
from dovetail_serve.options import Limits, ServerOptions
from dovetail_serve.ray.command import declare_ray, is_on_ray, serve_on_ray

if TYPE_CHECKING:
    from dovetail_serve.server import Server

__all__ = ["declare", "read_options", "run"]

_LOG: Final = logging.getLogger("dovetail_serve.command")
_EXIT_LOST: Final = 4
"""Accepted requests were left without an answer."""
_MIB: Final = 1 << 20
_LOOK_S: Final = 0.1


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    usual = ServerOptions()
    parser.add_argument("models", metavar="MODELS", help="a folder with MODEL/VERSION/model.plan or model.onnx")
    add_plugins(parser)
    where = parser.add_argument_group("where it listens")
    where.add_argument("--host", default=usual.host, help=f"an address of this machine (default {usual.host})")
    where.add_argument("--http-port", type=_port, default=usual.http_port, metavar="PORT", help=_port_help(8000))
    where.add_argument("--grpc-port", type=_port, default=usual.grpc_port, metavar="PORT", help=_port_help(8001))
    _declare_trust(parser.add_argument_group("what it allows"))
    _declare_limits(parser.add_argument_group("limits"), usual)
    _declare_logs(parser.add_argument_group("what it tells"))
    declare_ray(parser.add_argument_group("on a Ray cluster"))
    finish_command(parser, run)


def _declare_trust(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--allow-control", action="store_true", help="let clients load and unload models")
    group.add_argument(
        "--allow-host-code",
        action="store_true",
        help="import plugin libraries that plans carry: only for plans from people you trust",
    )
    group.add_argument("--api-key-file", type=Path, metavar="FILE", help="a file with the key that clients must send")
    group.add_argument("--tls-certificate", type=Path, metavar="FILE", help="a certificate chain (PEM), for TLS")
    group.add_argument("--tls-key", type=Path, metavar="FILE", help="its key (PEM)")


def _declare_limits(group: argparse._ArgumentGroup, usual: ServerOptions) -> None:
    limits = usual.limits

    def add(name: str, kind: Callable[[str], float], default: float, unit: str, text: str) -> None:
        group.add_argument(name, type=kind, default=default, metavar=unit, help=f"{text} (default {default:g})")

    add("--max-body", positive_float, limits.body_bytes // _MIB, "MIB", "the largest body of a request")
    add("--max-tensor", positive_float, limits.tensor_bytes // _MIB, "MIB", "the largest tensor")
    add("--max-connections", positive_int, limits.connections, "N", "connections of HTTP at once")
    add("--idle", positive_float, limits.idle_s, "S", "seconds that a connection may stay without a request")
    add("--drain", non_negative_float, usual.drain_s, "S", "seconds that accepted requests have when the server ends")
    add("--poll", non_negative_float, usual.poll_s, "S", "seconds between looks for changed models, 0 for none")


def _declare_logs(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--log-format", choices=("text", "json"), default="text", help="how logs are written (text)")
    group.add_argument("--log-requests", action="store_true", help="a line for each request, without its values")
    group.add_argument(
        "--trace", action="store_true", help="send traces by OpenTelemetry (OTEL_EXPORTER_OTLP_ENDPOINT)"
    )
    group.add_argument("--quiet", action="store_true", help="show nothing but errors")


def _port_help(usual: int) -> str:
    return f"a number, 0 for any that is free, off for none (default {usual})"


def _port(text: str) -> int | None:
    if text == "off":
        return None
    if not text.isascii() or not text.isdecimal() or len(text) > 5 or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"expected 0 to 65535, or off, got {text[:40]!r}")
    return int(text)


def read_options(args: argparse.Namespace) -> ServerOptions:
    """What a command line says of the server.

    Raises:
        DovetailError: Something of it can never be right, or a file cannot be used.
    """
    from dovetail_serve.addresses import check_options, read_api_key

    body, tensor = int(args.max_body * _MIB), int(args.max_tensor * _MIB)
    limits = replace(Limits(), body_bytes=body, tensor_bytes=tensor, connections=args.max_connections, idle_s=args.idle)
    options = ServerOptions(
        host=args.host,
        http_port=args.http_port,
        grpc_port=args.grpc_port,
        allow_control=args.allow_control,
        allow_host_code=args.allow_host_code,
        api_key=None if args.api_key_file is None else read_api_key(args.api_key_file),
        tls_certificate=args.tls_certificate,
        tls_key=args.tls_key,
        limits=limits,
        drain_s=args.drain,
        poll_s=args.poll,
        log_requests=args.log_requests,
        tracing=args.trace,
    )
    check_options(options)
    return options


def run(args: argparse.Namespace) -> Reply:
    """Serve until a signal comes; the answer is shown when models are loaded."""
    from dovetail.plugin.registry import get_plugin_registry
    from dovetail_serve.addresses import warn_of_exposure
    from dovetail_serve.metrics.logs import set_up_logs
    from dovetail_serve.server import Server

    options = read_options(args)
    set_up_logs(as_json=args.log_format == "json", level=logging.ERROR if args.quiet else logging.INFO)
    if (warning := warn_of_exposure(options)) is not None:
        _LOG.error(
            "%s; to end that, give --api-key-file, --tls-certificate and --tls-key, or leave out --host", warning
        )
    if is_on_ray(args):
        return serve_on_ray(args, options)
    load_libraries(args.plugins, get_plugin_registry())
    server = Server(args.models, options)
    with _exporting_traces(options), _catching_signals(server) as signals:
        server.start()
        try:
            reply = _show_when_loaded(args, server, signals)
            _LOG.info("%s: draining", signals.get())
        finally:
            is_drained = server.stop()
    _LOG.info("stopped")
    return reply._replace(is_shown=True, exit_code=0 if is_drained else _EXIT_LOST)


def _show_when_loaded(args: argparse.Namespace, server: Server, signals: SimpleQueue[str]) -> Reply:
    """Wait until each model is ready or has failed, or until a signal comes, and show how they are."""
    while signals.empty() and not server.wait_until_loaded(_LOOK_S):
        pass
    reply = Reply(document=describe_server(args.models, server), show=_show)
    if args.json or not args.quiet:
        show_answer(reply, as_json=args.json)
    return reply


@contextmanager
def _exporting_traces(options: ServerOptions) -> Iterator[None]:
    if not options.tracing:
        yield
        return
    from dovetail_serve.metrics.tracing import set_up_export

    end = set_up_export()
    try:
        yield
    finally:
        end()


@contextmanager
def _catching_signals(server: Server) -> Iterator[SimpleQueue[str]]:
    """Signals as names in a queue; the second one lets the server wait for nothing."""
    # Of the ways to wake the main thread, a SimpleQueue is the one that a signal handler may use at any moment.
    names: SimpleQueue[str] = SimpleQueue()
    count = 0

    def take(number: int, frame: FrameType | None) -> None:
        nonlocal count
        count += 1
        if count > 1:
            server.stop_now()
        names.put(signal.Signals(number).name)

    before = {number: signal.signal(number, take) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield names
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def describe_server(models: str, server: Server) -> dict[str, Any]:
    """Where a server listens, and what it serves."""
    options = server.options
    index = [
        {"name": entry.name, "version": entry.version, "state": entry.state, "reason": entry.reason}
        for entry in server.index()
    ]
    return {
        "folder": models,
        "pid": os.getpid(),
        "http": server.http_url,
        "grpc": server.grpc_address,
        "tls": options.tls_certificate is not None,
        "api_key": options.api_key is not None,
        "allow_control": options.allow_control,
        "models": index,
    }


def _show(document: Document, screen: Screen) -> None:
    ready = sum(model["state"] == "READY" for model in document["models"])
    screen.title(f"{document['folder']}: {ready} of {len(document['models'])} models are ready")
    screen.table(
        ("model", "version", "state", "reason"),
        [tuple(model[key] for key in ("name", "version", "state", "reason")) for model in document["models"]],
        prose=(3,),
    )
    if document["http"]:
        screen.line(f"HTTP  {document['http']} (open it in a browser; metrics at /metrics)")
    if document["grpc"]:
        screen.line(f"gRPC  {document['grpc']}")
    screen.line("Ctrl-C ends it after the requests that were accepted")
