"""Clients of the soak over HTTP and gRPC: each response is checked, each end is counted."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import grpc
import numpy as np

from benchmarks.serve.soaking.repository import GENERATIONS, WIDTH
from dovetail_serve.grpc.messages import INFERENCE

RETRY_S = 0.25
METHOD = "/inference.GRPCInferenceService/ModelInfer"


@dataclass
class Tally:
    """How requests ended, and how long those took that were answered."""

    ends: Counter[str] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    times_ms: dict[str, list[float]] = field(default_factory=dict)
    ending_since: float | None = None
    """When the server was told to end; what is sent later may be refused or find nobody."""

    def add(self, end: str, start: float, note: str = "") -> None:
        """Count a request by its end; a note says what was lost, unless the server had been told to end."""
        self.ends[end] += 1
        self.times_ms.setdefault(end, []).append((time.perf_counter() - start) * 1e3)
        if len(self.times_ms[end]) > 200_000:
            del self.times_ms[end][:100_000]
        # What was sent before the end must be answered; the answer may be that the server had not taken it yet.
        is_due = self.ending_since is None or (start < self.ending_since and not end.endswith("refused"))
        if note and is_due:
            self.lost.append(note)

    def check(self, x: Any, y: Any) -> None:
        """Hold a response against its request: it must be that of one plan."""
        rest = y - 2 * x
        if rest.min() != rest.max() or rest.flat[0] not in range(GENERATIONS):
            self.wrong.append(f"{rest.min()} to {rest.max()}")


def make_input(rows: int) -> Any:
    """Whole numbers, so that results are exact."""
    return np.random.default_rng().integers(-1000, 1000, (rows, WIDTH)).astype(np.float32)


class HttpClient:
    """One connection with binary tensors, on plain streams: a client library would take more time than the server."""

    name = "http"

    def __init__(self, url: str) -> None:
        self._host, _, port = url.removeprefix("http://").rpartition(":")
        self._port = int(port)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def infer(self, model: str, x: Any) -> tuple[int, Any]:
        """The status, and the output where there is one; a request that is given up closes the connection."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port)
        streams, self._streams = self._streams, None
        try:
            answer = await self._exchange(*streams, _write_request(model, x, self._host))
        except BaseException:
            streams[1].close()
            raise
        self._streams = streams
        status, headers, body = answer
        if status != 200:
            return status, None
        size = int(headers["inference-header-content-length"])
        return 200, np.frombuffer(body[size:], np.float32).reshape(x.shape)

    async def _exchange(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        writer.write(request)
        try:
            first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").splitlines()
            headers = dict(line.lower().split(": ", 1) for line in lines if line)
            body = await reader.readexactly(int(headers["content-length"]))
        except asyncio.IncompleteReadError as error:
            raise ConnectionError("the server closed the connection") from error
        return int(first.split()[1]), headers, body

    async def close(self) -> None:
        """End the connection."""
        if self._streams is not None:
            self._streams[1].close()


def _write_request(model: str, x: Any, host: str) -> bytes:
    raw = x.tobytes()
    output = '"outputs":[{"name":"y","parameters":{"binary_data":true}}]'
    tensor = f'"name":"x","datatype":"FP32","shape":[{len(x)},{WIDTH}],"parameters":{{"binary_data_size":{len(raw)}}}'
    body = f'{{"inputs":[{{{tensor}}}],{output}}}'.encode()
    head = f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body) + len(raw)}\r\n"
    return f"{head}Inference-Header-Content-Length: {len(body)}\r\n\r\n".encode() + body + raw


class GrpcClient:
    """One channel with raw tensors."""

    name = "grpc"

    def __init__(self, address: str) -> None:
        # Channels of one process to one address share a connection unless they are told not to.
        self._channel = grpc.aio.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)])
        self._call = self._channel.unary_unary(METHOD)

    async def infer(self, model: str, x: Any) -> tuple[int, Any]:
        """The status as HTTP has it, and the output where there is one."""
        request = INFERENCE["ModelInferRequest"](model_name=model, raw_input_contents=[x.tobytes()])
        request.inputs.add(name="x", datatype="FP32", shape=list(x.shape))
        try:
            data = await self._call(request.SerializeToString(), timeout=60)
        except grpc.aio.AioRpcError as error:
            is_refused = error.code() is grpc.StatusCode.UNAVAILABLE and "retry-after" in dict(
                error.trailing_metadata()
            )
            if is_refused:
                return 503, None
            raise ConnectionError(f"{error.code()}: {error.details()}") from error
        response = INFERENCE["ModelInferResponse"].FromString(data)
        return 200, np.frombuffer(response.raw_output_contents[0], np.float32).reshape(x.shape)

    async def close(self) -> None:
        """End the connection."""
        await self._channel.close()


async def keep_asking(client: Any, model: str, tally: Tally, until: asyncio.Event, pause_s: float = 0.0) -> None:
    """Send one request after the other and check each response, until the end or until nobody is there."""
    while not until.is_set():
        x, start = make_input(random.choice((1, 1, 2, 4))), time.perf_counter()
        try:
            status, y = await client.infer(model, x)
        except OSError as error:
            tally.add(f"{client.name} failed", start, f"{client.name}: {type(error).__name__}: {error}")
            if tally.ending_since is not None:
                return
            continue
        if status == 200:
            tally.add(f"{client.name} answered", start)
            if model == "changing":
                tally.check(x, y)
        else:
            is_expected = status == 503 and model == "limited"
            tally.add(f"{client.name} refused", start, "" if is_expected else f"{client.name}: status {status}")
            # Clients that all came back at the same moment would wait for each other.
            await asyncio.sleep(random.uniform(0.5, 1.5) * RETRY_S)
        await asyncio.sleep(pause_s)


async def keep_leaving(make_client: Any, tally: Tally, until: asyncio.Event) -> None:
    """Begin requests and go away in the middle of them."""
    client = make_client()
    while not until.is_set():
        task = asyncio.create_task(client.infer("changing", make_input(1)))
        await asyncio.sleep(random.uniform(0, 0.004))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        tally.ends[f"{client.name} cancelled"] += 1
        if random.random() < 0.1:
            await client.close()
            client = make_client()
        await asyncio.sleep(0.05)
    await client.close()
