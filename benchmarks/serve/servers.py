"""The servers that are compared, each in a process of its own: ``python -m benchmarks.serve.servers ours|echo``.

It prints its ports as JSON and serves until its input is closed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import uvicorn

FEATURES = 64


def make_engine() -> Any:
    """A model of a few microseconds."""
    import dovetail as dt

    @dt.layer("Half", shape=lambda x: tuple(x))
    def halve(x: Any) -> Any:
        return x * np.float32(0.5)

    network = dt.Builder().create_network()
    x = network.add_input("x", dt.float32, (-1, FEATURES))
    output = network.add_plugin_v3([x], [], halve.plugin()).get_output(0)
    output.name = "y"
    network.mark_output(output)
    return dt.compile(network, shapes={"x": ((1, FEATURES), (1, FEATURES), (1024, FEATURES))})


class DirectService:
    """Runs the model at once, on the event loop: what is left is the cost of HTTP and gRPC."""

    is_ready = True

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    async def infer(self, request: Any) -> Any:
        from dovetail_serve.protocol.requests import InferResponse

        return InferResponse(request.model, "1", {"y": self._engine(request.inputs["x"])}, request.id)


async def make_service(which: str, engine: Any, folder: Path) -> Any:
    """The service of a repository with the model, or the direct one."""
    if which == "direct":
        return DirectService(engine)
    from dovetail_serve.service import InferenceService

    path = folder / "half" / "1" / "model.plan"
    path.parent.mkdir(parents=True)
    engine.save(path)
    service = InferenceService(folder)
    await service.start()
    await service.wait_loaded()
    return service


def time_model(engine: Any, rows: int) -> float:
    """Microseconds of one call, at best."""
    x = np.ones((rows, FEATURES), np.float32)
    best = float("inf")
    for _ in range(2000):
        start = time.perf_counter_ns()
        engine(x)
        best = min(best, time.perf_counter_ns() - start)
    return best / 1e3


def make_echo_app() -> Any:
    """The least that Starlette does for a body."""
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    async def echo(request: Request) -> Response:
        return Response(await request.body(), media_type="application/octet-stream")

    return Starlette(routes=[Route("/v2/models/{model}/infer", echo, methods=["POST"])])


def make_echo_grpc() -> Any:
    """The least that grpc.aio does for a message."""
    import grpc

    async def echo(data: bytes, context: Any) -> bytes:
        return data

    server = grpc.aio.server()
    handlers = {"ModelInfer": grpc.unary_unary_rpc_method_handler(echo)}
    service = "inference.GRPCInferenceService"
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    return server


async def start_ours(service: str, folder: Path) -> tuple[dict[str, int], Callable[[], Awaitable[Any]]]:
    """The server as users start it, or its two ways in over the direct service."""
    from dovetail_serve.assembly import make_listeners
    from dovetail_serve.options import ServerOptions

    options = ServerOptions(http_port=0, grpc_port=0, poll_s=0)
    made = await make_service(service, make_engine(), folder)
    listeners = make_listeners(made, options, None)
    for listener in listeners.values():
        await listener.start()

    async def stop() -> None:
        for listener in listeners.values():
            await listener.stop(0)

    return {way: listener.port for way, listener in listeners.items()}, stop


async def start_echo() -> tuple[dict[str, int], Callable[[], Awaitable[Any]]]:
    # asyncio turns the delay of small packets off only where the protocol is named, and that delay is 40 ms.
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", 0))
    config = uvicorn.Config(
        make_echo_app(),
        http="h11",
        log_config=None,
        access_log=False,
        ws="none",
        lifespan="off",
        timeout_keep_alive=600,
    )
    server, grpc_server = uvicorn.Server(config), make_echo_grpc()
    serving = asyncio.ensure_future(server.serve([listening]))
    port = grpc_server.add_insecure_port("127.0.0.1:0")
    await grpc_server.start()

    async def stop() -> None:
        server.should_exit = True
        await serving
        await grpc_server.stop(0)

    return {"http": listening.getsockname()[1], "grpc": port}, stop


async def serve(which: str, options: argparse.Namespace, folder: Path) -> None:
    times = {}
    if which == "echo":
        ports, stop = await start_echo()
    else:
        times = {str(each): time_model(make_engine(), each) for each in options.rows}
        ports, stop = await start_ours(options.service, folder)
    print(json.dumps({**ports, "times": times}), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await stop()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("which", choices=("ours", "echo"))
    parser.add_argument("--loop", choices=("asyncio", "uvloop"), default="asyncio")
    parser.add_argument("--rows", type=int, nargs="*", default=[])
    parser.add_argument("--service", choices=("direct", "repository"), default="repository")
    options = parser.parse_args()
    factory = None
    if options.loop == "uvloop":
        import uvloop

        factory = uvloop.new_event_loop
    with TemporaryDirectory() as folder, asyncio.Runner(loop_factory=factory) as runner:
        runner.run(serve(options.which, options, Path(folder)))


if __name__ == "__main__":
    main()
