"""The cost of a request beside a bare echo of the same bytes: ``python -m benchmarks.serve``.

One client, one request at a time, first one server and then the other, in many rounds. Each server has a process of its
own. The echo of HTTP is the least that Starlette does, and that of gRPC the least that grpc.aio does.
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
    size = rows * FEATURES * 4
    document = json.dumps(
        {
            "inputs": [
                {
                    "name": "x",
                    "shape": [rows, FEATURES],
                    "datatype": "FP32",
                    "parameters": {"binary_data_size": size},
                }
            ],
            "outputs": [{"name": "y", "parameters": {"binary_data": True}}],
        },
        separators=(",", ":"),
    ).encode()
    body = document + bytes(size)
    head = (
        f"POST /v2/models/relu/infer HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n"
        f"Inference-Header-Content-Length: {len(document)}\r\n\r\n"
    )
    return head.encode() + body


def http_call(port: int, request: bytes) -> Call:
    """A client that does as little as it can, so that the servers are what is compared."""
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    buffer = bytearray(4 << 20)
    view = memoryview(buffer)

    def call() -> None:
        connection.sendall(request)
        received = 0
        while (end := buffer.find(b"\r\n\r\n", 0, received)) < 0:
            received += connection.recv_into(view[received:])
        head = bytes(view[:end]).lower()
        assert head.startswith(b"http/1.1 200"), bytes(view[:received])
        size = int(head.split(b"content-length: ")[1].split(b"\r\n")[0])
        while received < end + 4 + size:
            received += connection.recv_into(view[received:])

    return call


def grpc_request(rows: int) -> bytes:
    from dovetail_serve.grpc.messages import INFERENCE

    message = INFERENCE["ModelInferRequest"](model_name="relu")
    message.inputs.add(name="x", datatype="FP32", shape=[rows, FEATURES])
    message.outputs.add(name="y")
    message.raw_input_contents.append(bytes(rows * FEATURES * 4))
    return message.SerializeToString()


def grpc_call(port: int, request: bytes) -> Call:
    import grpc

    channel = grpc.insecure_channel(f"127.0.0.1:{port}", [("grpc.max_receive_message_length", -1)])
    method = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
    return lambda: method(request)


def time_calls(call: Call, count: int) -> list[float]:
    """Microseconds of each call."""
    found = []
    for _ in range(count):
        start = time.perf_counter_ns()
        call()
        found.append((time.perf_counter_ns() - start) / 1e3)
    return found


def compare(ours: Call, echo: Call, rounds: int, count: int) -> tuple[float, float, float]:
    """The p50 of both, and the median over rounds of the quotient of their p50."""
    for call in (ours, echo):
        time_calls(call, 200)
    all_ours: list[float] = []
    all_echo: list[float] = []
    quotients = []
    for _ in range(rounds):
        one, other = time_calls(ours, count), time_calls(echo, count)
        all_ours += one
        all_echo += other
        quotients.append(statistics.median(one) / statistics.median(other))
    return statistics.median(all_ours), statistics.median(all_echo), statistics.median(quotients)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--http", choices=("h11", "httptools"), default="h11")
    parser.add_argument("--loop", choices=("asyncio", "uvloop"), default="asyncio")
    parser.add_argument("--rows", type=int, nargs="*", default=[4, 430])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--count", type=int, default=100)
    options = parser.parse_args()
    how = ["--http", options.http, "--loop", options.loop]
    with ExitStack() as stack:
        ours = stack.enter_context(started("ours", [*how, "--rows", *map(str, options.rows)]))
        echo = stack.enter_context(started("echo", how))
        print(f"p50 of one client in us, with {options.http} and {options.loop}")
        print(f"{'':6}{'bytes':>9}{'model':>8}{'ours':>9}{'echo':>9}{'quotient':>10}")
        for rows in options.rows:
            for way, make_call, make_request in (
                ("HTTP", http_call, http_request),
                ("gRPC", grpc_call, grpc_request),
            ):
                request = make_request(rows)
                pair = (make_call(server[way.lower()], request) for server in (ours, echo))
                mine, bare, quotient = compare(*pair, options.rounds, options.count)
                model = ours["times"][str(rows)]
                size = rows * FEATURES * 4
                print(f"{way:6}{size:>9}{model:>8.1f}{mine:>9.0f}{bare:>9.0f}{quotient:>10.2f}", flush=True)


if __name__ == "__main__":
    main()
