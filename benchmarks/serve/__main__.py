"""The cost of a request beside a bare echo of the same bytes: ``python -m benchmarks.serve``.

One client, one request at a time, fifty to one server and then to the other, each in a process of its own. Ours serves
a repository; with ``--service direct`` it runs the model on the event loop, and what is left is the cost of HTTP
and gRPC. The echo of HTTP is the least that Starlette does, and that of gRPC the least that grpc.aio does.
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from benchmarks.serve.servers import FEATURES

Call = Callable[[], Any]
TURN = 50
UNCOUNTED = 5


@contextmanager
def started(which: str, how: list[str]) -> Iterator[dict[str, Any]]:
    """A server in a process of its own, and its ports."""
    command = [sys.executable, "-m", "benchmarks.serve.servers", which, *how]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield json.loads(process.stdout.readline())
        finally:
            process.stdin.close()
            process.wait(20)


def http_request(rows: int) -> bytes:
    raw = bytes(rows * FEATURES * 4)
    parameters = {"binary_data_size": len(raw)}
    entry = {"name": "x", "shape": [rows, FEATURES], "datatype": "FP32", "parameters": parameters}
    outputs = [{"name": "y", "parameters": {"binary_data": True}}]
    document = json.dumps({"inputs": [entry], "outputs": outputs}, separators=(",", ":")).encode()
    head = (
        f"POST /v2/models/half/infer HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(document) + len(raw)}\r\n"
        f"Inference-Header-Content-Length: {len(document)}\r\n\r\n"
    )
    return head.encode() + document + raw


def http_call(port: int, request: bytes) -> Call:
    """A client that does as little as it can, so that the servers are what is compared."""
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    buffer = bytearray(4 << 20)
    view = memoryview(buffer)

    def receive(received: int) -> int:
        size = connection.recv_into(view[received:])
        assert size, f"the server closed the connection after {received} bytes"
        return received + size

    def call() -> None:
        connection.sendall(request)
        received = 0
        while (end := buffer.find(b"\r\n\r\n", 0, received)) < 0:
            received = receive(received)
        head = bytes(view[:end]).lower()
        assert head.startswith(b"http/1.1 200"), head
        size = int(head.split(b"\r\ncontent-length: ")[1].split(b"\r\n")[0])
        while received < end + 4 + size:
            received = receive(received)

    return call


def grpc_request(rows: int) -> bytes:
    from dovetail_serve.grpc.messages import INFERENCE

    message = INFERENCE["ModelInferRequest"](model_name="half")
    message.inputs.add(name="x", datatype="FP32", shape=[rows, FEATURES])
    message.outputs.add(name="y")
    message.raw_input_contents.append(bytes(rows * FEATURES * 4))
    return message.SerializeToString()


def grpc_call(port: int, request: bytes) -> Call:
    import grpc

    channel = grpc.insecure_channel(f"127.0.0.1:{port}", [("grpc.max_receive_message_length", -1)])
    method = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
    return lambda: method(request)


def compare(ours: Call, echo: Call, count: int) -> tuple[float, float, float]:
    """The p50 of both in us, in turns of some calls each, and the middle one of the quotients of the turns.

    What else the machine does falls on both calls of a turn.
    """
    turns = [(time_turn(ours), time_turn(echo)) for _ in range(count // TURN)]
    mine, bare = zip(*turns, strict=True)
    return statistics.median(mine), statistics.median(bare), statistics.median(a / b for a, b in turns)


def time_turn(call: Call) -> float:
    """The p50 of some calls in us; the first ones find nothing of their process in the caches, and do not count."""
    times = []
    for number in range(TURN + UNCOUNTED):
        start = time.perf_counter_ns()
        call()
        if number >= UNCOUNTED:
            times.append((time.perf_counter_ns() - start) / 1e3)
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loop", choices=("asyncio", "uvloop"), default="asyncio")
    parser.add_argument("--rows", type=int, nargs="*", default=[4, 430])
    parser.add_argument("--count", type=int, default=4000)
    parser.add_argument("--service", choices=("direct", "repository"), default="repository")
    options = parser.parse_args()
    how = ["--loop", options.loop]
    with ExitStack() as stack:
        ours = stack.enter_context(
            started("ours", [*how, "--service", options.service, "--rows", *map(str, options.rows)])
        )
        echo = stack.enter_context(started("echo", how))
        print(f"p50 of one client in us, with {options.loop}; the service is {options.service}")
        print(f"{'':6}{'bytes':>9}{'model':>8}{'ours':>9}{'echo':>9}{'quotient':>10}")
        for rows in options.rows:
            for way, make_call, make_request in (
                ("HTTP", http_call, http_request),
                ("gRPC", grpc_call, grpc_request),
            ):
                request = make_request(rows)
                pair = (make_call(server[way.lower()], request) for server in (ours, echo))
                mine, bare, quotient = compare(*pair, options.count)
                model = ours["times"][str(rows)]
                size = rows * FEATURES * 4
                print(f"{way:6}{size:>9}{model:>8.1f}{mine:>9.0f}{bare:>9.0f}{quotient:>10.2f}", flush=True)


if __name__ == "__main__":
    main()
