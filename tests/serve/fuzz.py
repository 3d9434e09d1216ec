"""Damaged requests by the thousand, over HTTP and gRPC, without sockets: ``python -m tests.serve.fuzz --cases 100000``.

Each case is a real request that was changed. The server must answer all of them within the protocol: never by an error
of its own, and without memory that grows.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import random
import sys
import time
import zlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from dovetail_serve.grpc.messages import INFERENCE
from dovetail_serve.grpc.server import _inference_handlers
from dovetail_serve.http import make_app
from dovetail_serve.options import Limits, ServerOptions
from dovetail_serve.protocol.requests import InferRequest
from tests.serve.support import EngineModel, EngineService

HTTP_STATUSES = {200, 400, 403, 404, 405, 413, 504}
GRPC_STATUSES = {
    "OK",
    "INVALID_ARGUMENT",
    "NOT_FOUND",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "UNIMPLEMENTED",
    "DEADLINE_EXCEEDED",
}
LIMITS = Limits(body_bytes=1 << 20, tensor_bytes=1 << 20, idle_s=1.0)
HOSTILE_NUMBERS = (0, 1, -1, 2**31, 2**32, 2**63 - 1, 2**63, 2**64, 10**30, 0.5, -0.0, 1e308, 65536, 255)
HOSTILE_TEXTS = ("", "x" * 70000, "\0", "../../etc", "\ud7ff", "BF16", "FP8", "BYTES", "a/b", "%2e%2e", "<b>", "\u202e")

HOSTILE_VALUES = (None, True, [], {}, [[]], [1] * 3, {"a": {}}, float("nan"))
HOSTILE_BYTES = (b"[" * 2000, b"NaN", b"1e999", b"\xff" * 9 + b"\x01", b"null")
HEADERS = (b"inference-header-content-length", b"content-length", b"content-encoding", b"accept-encoding")


class InlineService(EngineService):
    """Runs on the event loop, so that a case is done when its call is."""

    async def _run(self, request: InferRequest, model: EngineModel) -> list[Any]:
        return model.run(request.inputs)

    async def infer(self, request: InferRequest) -> Any:
        response = await super().infer(request)
        self.requests.clear()
        return response


@dataclass
class HttpCase:
    """A request as an ASGI server gives it."""

    method: str
    path: str
    headers: dict[bytes, bytes]
    parts: list[bytes]


@dataclass
class GrpcCase:
    """A message for a method."""

    method: str
    data: bytes


def document_of(model: str, name: str, datatype: str, data: Any, shape: list[int]) -> dict[str, Any]:
    entry = {"name": name, "datatype": datatype, "shape": shape, "data": data}
    outputs = [{"name": "y", "parameters": {"binary_data": model == "identity_FP32"}}]
    return {"id": "7", "inputs": [entry], "outputs": outputs, "parameters": {"priority": 1, "timeout": 5_000_000}}


def http_seeds() -> list[HttpCase]:
    """Requests that are right."""
    plain = [
        ("identity_FP32", document_of("identity_FP32", "x", "FP32", [[1.5, 2], [3, 4e9]], [2, 2])),
        ("identity_INT64", document_of("identity_INT64", "x", "INT64", [2**62, -5, 7], [1, 3])),
        ("identity_BYTES", document_of("identity_BYTES", "x", "BYTES", ["a", "\u00fc,["], [2, 1])),
        ("identity_BOOL", document_of("identity_BOOL", "x", "BOOL", [True, False], [1, 2])),
    ]
    found = [_post(f"/v2/models/{name}/infer", json.dumps(document).encode(), {}) for name, document in plain]
    found += [_binary_seed("FP32", np.ones((2, 3), np.float32).tobytes(), [2, 3])]
    found += [_binary_seed("BYTES", b"\x02\0\0\0hi\0\0\0\0", [1, 2]), _binary_seed("BOOL", b"\0\1", [2, 1])]
    body = found[4].parts[0]
    packed = found[4].headers
    path = found[4].path
    found.append(_post(path, gzip.compress(body), packed | {b"content-encoding": b"gzip"}))
    found.append(_post(path, zlib.compress(body), packed | {b"content-encoding": b"deflate"}))
    found.append(_post(path, zlib.compress(bytes(8 << 20)), packed | {b"content-encoding": b"deflate"}))
    found.append(_post("/v2/repository/index", b'{"ready": true}', {}))
    found.append(_post("/v2/repository/models/sums/load", b"{}", {}))
    paths = ("/v2", "/v2/health/ready", "/v2/models/sums", "/v2/models/sums/versions/1/config", "/v2/models/stats")
    return found + [HttpCase("GET", path, {}, [b""]) for path in paths]


def _post(path: str, body: bytes, headers: dict[bytes, bytes]) -> HttpCase:
    return HttpCase("POST", path, {b"content-length": b"%d" % len(body), **headers}, [body])


def _binary_seed(datatype: str, raw: bytes, shape: list[int]) -> HttpCase:
    entry = {"name": "x", "datatype": datatype, "shape": shape, "parameters": {"binary_data_size": len(raw)}}
    head = json.dumps({"inputs": [entry], "parameters": {"binary_data_output": True}}).encode()
    headers = {b"inference-header-content-length": b"%d" % len(head), b"accept-encoding": b"gzip;q=0.5, br"}
    return _post(f"/v2/models/identity_{datatype}/infer", head + raw, headers)


def grpc_seeds() -> list[GrpcCase]:
    """Messages that are right."""
    raw = INFERENCE["ModelInferRequest"](model_name="identity_FP32", model_version="1", id="7")
    raw.inputs.add(name="x", datatype="FP32", shape=[2, 3])
    raw.outputs.add(name="y")
    raw.parameters["priority"].int64_param = 1
    raw.raw_input_contents.append(bytes(24))
    typed = INFERENCE["ModelInferRequest"](model_name="identity_INT64")
    typed.inputs.add(name="x", datatype="INT64", shape=[1, 3]).contents.int64_contents.extend([1, -2, 2**62])
    text = INFERENCE["ModelInferRequest"](model_name="identity_BYTES")
    text.inputs.add(name="x", datatype="BYTES", shape=[1, 2]).contents.bytes_contents.extend([b"a", b"\xff"])
    named = INFERENCE["ModelMetadataRequest"](name="sums", version="1").SerializeToString()
    infers = [GrpcCase("ModelInfer", each.SerializeToString()) for each in (raw, typed, text)]
    asked = ("ModelMetadata", "ModelConfig", "ModelStatistics", "ModelReady", "RepositoryIndex", "LogSettings")
    return infers + [GrpcCase(name, named) for name in (*asked, "RepositoryModelLoad", "ServerMetadata")]


def damage(data: bytes, rng: random.Random) -> bytes:
    """Bytes with a few of them changed, lost, repeated or added."""
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        at = rng.randrange(len(found) + 1)
        kind = rng.randrange(6)
        if kind == 0 and at < len(found):
            found[at] ^= 1 << rng.randrange(8)
        elif kind == 1 and at < len(found):
            found[at] = rng.choice(b'\0\xff\x7f\x80"[]{},:0-9eEN')
        elif kind == 2:
            del found[at : at + rng.choice((1, 4, 64))]
        elif kind == 3:
            found[at:at] = rng.choice(
                (b"[" * 2000, b"NaN", b"1e999", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"null")
            )
        elif kind == 4:
            found[at:at] = found[at : at + rng.choice((1, 16, 256))]
        else:
            del found[at:]
    return bytes(found)


def alter(value: Any, rng: random.Random) -> Any:
    """A document with one of its values replaced, wherever it is."""
    if rng.random() < 0.3 or not isinstance(value, dict | list) or not value:
        return rng.choice(
            (*HOSTILE_NUMBERS, *HOSTILE_TEXTS, None, True, [], {}, [[]], [1] * 3, {"a": {}}, float("nan"))
        )
    if isinstance(value, dict):
        key = rng.choice(sorted(value))
        if rng.random() < 0.1:
            return {name: each for name, each in value.items() if name != key}
        return {**value, key: alter(value[key], rng)}
    at = rng.randrange(len(value))
    if rng.random() < 0.1:
        return value * rng.choice((0, 2, 300))
    return [*value[:at], alter(value[at], rng), *value[at + 1 :]]


def change_http(seed: HttpCase, rng: random.Random) -> HttpCase:
    body, headers, path, method = seed.parts[0], dict(seed.headers), seed.path, seed.method
    kind = rng.randrange(6)
    if kind <= 1:
        body = damage(body, rng)
    elif kind <= 3:
        body = _alter_document(body, headers, rng)
    elif kind == 4:
        name = rng.choice(
            (b"inference-header-content-length", b"content-length", b"content-encoding", b"accept-encoding")
        )
        values = (b"-1", b"0", b"9" * 30, b"%d" % len(body), b"7", b"", b"\xff", b"gzip", b"deflate", b"gzip, deflate")
        headers[name] = rng.choice(values)
    else:
        path = damage(path.encode(), rng).decode("latin-1")
        method = rng.choice(("GET", "POST", "PUT", "HEAD"))
    return HttpCase(method, path, headers, _cut(body, rng))


def _alter_document(body: bytes, headers: dict[bytes, bytes], rng: random.Random) -> bytes:
    size = int(headers.get(b"inference-header-content-length", len(body)))
    try:
        document = json.loads(body[:size])
    except ValueError:
        return damage(body, rng)
    head = json.dumps(alter(document, rng)).encode()
    if b"inference-header-content-length" in headers:
        headers[b"inference-header-content-length"] = b"%d" % len(head)
    return head + body[size:]


def _cut(body: bytes, rng: random.Random) -> list[bytes]:
    if rng.random() < 0.7:
        return [body]
    at = rng.randrange(len(body) + 1)
    return [body[:at], b"", body[at:]]


def change_grpc(seed: GrpcCase, rng: random.Random) -> GrpcCase:
    data = damage(seed.data, rng)
    if rng.random() < 0.05:
        data = data + bytes((rng.choice((0x2A, 0x32, 0x3A, 0x22)), 0)) * rng.choice((300, 5000))
    return GrpcCase(seed.method, data)


class Target:
    """The server, called without sockets."""

    def __init__(self) -> None:
        service = InlineService(("FP32", "INT64", "BYTES", "BOOL"))
        del service.models["slow"], service.models["failing"]
        options = ServerOptions(limits=LIMITS)
        self.app = make_app(service, options)
        self.handlers = _inference_handlers(service, options)

    async def call_http(self, case: HttpCase) -> int:
        """The status of the response, which must be one of the protocol."""
        sent: list[dict[str, Any]] = []
        parts = list(case.parts)

        async def receive() -> dict[str, Any]:
            if not parts:
                return {"type": "http.disconnect"}
            return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": case.method,
            "scheme": "http",
            "path": case.path,
            "raw_path": case.path.encode("latin-1", "replace"),
            "query_string": b"",
            "root_path": "",
            "headers": list(case.headers.items()),
        }
        await self.app(scope, receive, send)
        status = sent[0]["status"]
        assert status in HTTP_STATUSES, (status, sent, case)
        if status not in (200, 405):
            assert json.loads(sent[1]["body"])["error"], (sent, case)
        return int(status)

    async def call_grpc(self, case: GrpcCase) -> str:
        """The status of the response, which must be one of the protocol."""
        details = _Details(f"/inference.GRPCInferenceService/{case.method}")
        handler = self.handlers.service(details).unary_unary
        context = _Context()
        try:
            answer = await handler(case.data, context)
        except _AbortedError:
            assert context.text, case
            assert context.code in GRPC_STATUSES, (context.code, context.text, case)
            return context.code
        assert isinstance(answer, bytes), case
        return "OK"


class _Details:
    def __init__(self, method: str) -> None:
        self.method = method
        self.invocation_metadata = ()


class _AbortedError(Exception):
    """What a call of ``abort`` raises."""


class _Context:
    code = "OK"
    text = ""

    def time_remaining(self) -> float | None:
        return None

    async def abort(self, code: grpc.StatusCode, text: str, trailing: Any = ()) -> None:
        self.code, self.text = code.name, text
        raise _AbortedError


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


async def run(cases: int, seed: int, target: Target | None = None) -> Counter[str]:
    """How often each status was answered."""
    rng = random.Random(seed)
    target = target or Target()
    http, messages = http_seeds(), grpc_seeds()
    found: Counter[str] = Counter()
    for number in range(cases):
        if number % 2:
            found[f"HTTP {await target.call_http(change_http(rng.choice(http), rng))}"] += 1
        else:
            found[f"gRPC {await target.call_grpc(change_grpc(rng.choice(messages), rng))}"] += 1
    return found


async def campaign(cases: int, seed: int) -> int:
    """Run in ten parts, and say how memory went; 0 when it stayed."""
    target = Target()
    total: Counter[str] = Counter()
    sizes = []
    start = time.monotonic()
    for part in range(10):
        total += await run(cases // 10, seed + part, target)
        sizes.append(resident_bytes() >> 20)
        print(f"{sum(total.values()):>8} cases  {time.monotonic() - start:6.1f} s  {sizes[-1]} MiB", flush=True)
    print(json.dumps(dict(sorted(total.items()))))
    growth = max(sizes[5:]) - max(sizes[1:5])
    print(f"memory grew by {growth} MiB in the second half")
    return int(growth > 16)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    return asyncio.run(campaign(options.cases, options.seed))


if __name__ == "__main__":
    sys.exit(main())
