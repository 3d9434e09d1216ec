"""The application over HTTP: limits, statuses, compression, the key, and clients that go."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from functools import cache
from typing import Any

import httpx
import numpy as np
import pytest

from dovetail_serve.errors import QueueFullError
from dovetail_serve.http import make_app
from dovetail_serve.options import Limits, ServerOptions
from dovetail_serve.protocol.requests import InferRequest
from tests.serve.fuzz import InlineService

LIMITS = Limits(body_bytes=1 << 16, tensor_bytes=1 << 15, header_bytes=1 << 10, tensors=4, idle_s=0.05)
INFER = "/v2/models/identity_FP32/infer"


@cache
def service() -> InlineService:
    return InlineService(("FP32", "BYTES"))


def ask(method: str, path: str, options: ServerOptions | None = None, **how: Any) -> httpx.Response:
    """The response to one request."""

    async def run() -> httpx.Response:
        app = make_app(service(), options or ServerOptions(limits=LIMITS))
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.request(method, path, **how)

    return asyncio.run(run())


def document(values: Any, shape: list[int], **more: Any) -> dict[str, Any]:
    return {"inputs": [{"name": "x", "datatype": "FP32", "shape": shape, "data": values}], **more}


def test_json_in_and_out() -> None:
    found = ask("POST", INFER, json=document([1, 2.5], [1, 2], id="a"))
    assert found.status_code == 200
    assert found.json() == {
        "id": "a",
        "model_name": "identity_FP32",
        "model_version": "2",
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [1, 2], "data": [1.0, 2.5]}],
    }


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"{", "RequestError"),
        (b'{"inputs": [{"name": "x", "shape": [-1]}]}', "RequestError"),
        (b" " * (1 << 17), "TooLargeError"),
    ],
)
def test_the_service_is_told_of_what_cannot_be_read(content: bytes, kind: str) -> None:
    service().unread.clear()
    assert ask("POST", INFER.replace("/infer", "/versions/2/infer"), content=content).status_code in (400, 413)
    assert list(service().unread) == [("identity_FP32", "2", kind)]


def test_nan_and_infinity_in_and_out() -> None:
    body = json.dumps(document([[float("nan"), float("inf"), float("-inf")]], [1, 3]))
    values = json.loads(ask("POST", INFER, content=body).text)["outputs"][0]["data"]
    np.testing.assert_array_equal(values, [np.nan, np.inf, -np.inf])


def test_an_output_asked_for_twice_or_with_binary_data() -> None:
    wanted = [{"name": "y", "parameters": {"binary_data": True}}]
    found = ask("POST", INFER, json=document([1, 2], [1, 2], outputs=wanted))
    size = int(found.headers["inference-header-content-length"])
    assert json.loads(found.content[:size])["outputs"][0]["parameters"] == {"binary_data_size": 8}
    assert np.frombuffer(found.content[size:], np.float32).tolist() == [1, 2]
    assert found.headers["content-type"] == "application/octet-stream"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "no JSON"),
        (b"{", "no JSON"),
        (b"[]", "does not fit the protocol"),
        (b"{}", "inputs"),
        (b'{"inputs": [{"name": "x"}]}', "shape"),
        (b'{"inputs": [{"data": ' + b"[" * 60_000, "nested too deeply"),
        (b'{"inputs": [NaN, ' + b"[" * 60_000, "does not fit the protocol"),
        (json.dumps({"inputs": document([1], [1, 1])["inputs"] * 2}).encode(), "given twice"),
        (json.dumps(document([1], [1, 1], parameters={"timeout": -5})).encode(), "parameter 'timeout'"),
        (json.dumps(document([1], [1, 1], parameters={"priority": "high"})).encode(), "parameter 'priority'"),
        (json.dumps(document([1], [1, 1], parameters={"sequence_id": 4})).encode(), "sequences"),
        (b'{"inputs": [{"name": "x", "shape": [1, 1], "datatype": "FP32"}]}', "must have 'data'"),
    ],
)
def test_documents_that_are_wrong(body: bytes, text: str) -> None:
    found = ask("POST", INFER, content=body)
    assert found.status_code == 400
    assert text in found.json()["error"]


@pytest.mark.parametrize(
    ("size", "rows", "text"),
    [
        ("9999", 1, "longer than the body"),
        ("x", 1, "no number"),
        (None, 2, "ends after the body"),
        (None, 0, "goes on"),
    ],
)
def test_binary_sizes_that_are_wrong(size: str | None, rows: int, text: str) -> None:
    entry = {"name": "x", "datatype": "FP32", "shape": [rows, 1], "parameters": {"binary_data_size": rows * 4}}
    head = json.dumps({"inputs": [entry]}).encode()
    headers = {"Inference-Header-Content-Length": size or str(len(head))}
    found = ask("POST", INFER, content=head + bytes(4), headers=headers)
    assert found.status_code == 400
    assert text in found.json()["error"]


async def flood() -> AsyncIterator[bytes]:
    for _ in range(1000):
        yield bytes(1000)


@pytest.mark.parametrize(
    "how",
    [
        {"content": bytes(1 << 17)},
        {"content": flood},
        {"content": zlib.compress(bytes(1 << 24)), "headers": {"content-encoding": "deflate"}},
        {"content": gzip.compress(bytes(1 << 24)), "headers": {"content-encoding": "gzip"}},
        {"json": document([1], [100, 100])},
        {"json": {"inputs": [{"name": str(n), "datatype": "FP32", "shape": [0], "data": []} for n in range(9)]}},
        {"content": b" " * 2000 + b"{}" + bytes(9), "headers": {"inference-header-content-length": "2002"}},
    ],
    ids=["length", "chunks", "deflate bomb", "gzip bomb", "shape", "tensors", "header"],
)
def test_what_is_too_large(how: dict[str, Any]) -> None:
    if isinstance(how.get("content"), Callable):
        how = {**how, "content": how["content"]()}
    assert ask("POST", INFER, **how).status_code == 413


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_compressed_bodies(encoding: str) -> None:
    text = json.dumps(document([1], [1, 1])).encode()
    packed = gzip.compress(text) if encoding == "gzip" else zlib.compress(text)
    assert ask("POST", INFER, content=packed, headers={"content-encoding": encoding}).status_code == 200
    for damaged in (packed[:-1], packed + b"x", b"junk"):
        assert ask("POST", INFER, content=damaged, headers={"content-encoding": encoding}).status_code == 400


@pytest.mark.parametrize(
    ("accept", "used"),
    [("gzip", "gzip"), ("deflate", "deflate"), ("br", None), ("gzip;q=0, deflate", "deflate"), ("identity", None)],
)
def test_compressed_responses(accept: str, used: str | None) -> None:
    found = ask("POST", INFER, json=document([0] * 2000, [1, 2000]), headers={"accept-encoding": accept})
    assert found.headers.get("content-encoding") == used
    assert len(found.json()["outputs"][0]["data"]) == 2000


def test_documents_are_never_compressed() -> None:
    found = ask("GET", "/v2/models/stats", headers={"accept-encoding": "gzip"})
    assert "content-encoding" not in found.headers


def test_an_unknown_encoding() -> None:
    found = ask("POST", INFER, content=b"{}", headers={"content-encoding": "br"})
    assert (found.status_code, "gzip, deflate" in found.json()["error"]) == (400, True)


def test_paths_and_methods_that_are_not_there() -> None:
    assert ask("GET", "/nothing").json() == {"error": "there is nothing at this path"}
    found = ask("GET", INFER)
    assert (found.status_code, found.headers["allow"]) == (405, "POST")


def test_readiness() -> None:
    assert ask("GET", "/v2/health/live").json() == {"live": True}
    assert ask("GET", "/v2/health/ready").status_code == 200
    service().is_ready = False
    try:
        assert ask("GET", "/v2/health/ready").status_code == 400
        found = ask("POST", INFER, json=document([1], [1, 1]))
        assert (found.status_code, found.headers["retry-after"]) == (503, "1")
    finally:
        service().is_ready = True


def test_a_full_queue_says_when_to_try_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(request: InferRequest) -> None:
        raise QueueFullError("the queue is full")

    monkeypatch.setattr(service(), "infer", refuse)
    found = ask("POST", INFER, json=document([1], [1, 1]))
    assert (found.status_code, found.headers["retry-after"]) == (503, "1")


def test_a_failure_of_the_server_tells_clients_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(request: InferRequest) -> None:
        raise ValueError("/secret/path")

    monkeypatch.setattr(service(), "infer", fail)
    found = ask("POST", INFER, json=document([1], [1, 1]))
    assert found.status_code == 500
    assert found.json() == {"error": "the server failed; its log says why"}
    assert "/secret/path" in caplog.text


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer no"}, {"x-api-key": "k\u00e9y".encode()}])
def test_the_wrong_key(headers: dict[str, Any]) -> None:
    found = ask("GET", "/v2", ServerOptions(api_key="k"), headers=headers)
    assert (found.status_code, found.headers["www-authenticate"]) == (401, "Bearer")
    assert ask("GET", "/nothing", ServerOptions(api_key="k")).status_code == 401


@pytest.mark.parametrize("headers", [{"authorization": "bearer k"}, {"x-api-key": "k"}])
def test_the_right_key(headers: dict[str, str]) -> None:
    assert ask("GET", "/v2", ServerOptions(api_key="k"), headers=headers).status_code == 200


def make_scope(path: str = INFER) -> dict[str, Any]:
    return {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "path": path,
        "raw_path": b"",
        "query_string": b"",
        "root_path": "",
        "headers": [],
    }


def messages(*bodies: bytes) -> Iterator[dict[str, Any]]:
    for number, body in enumerate(bodies, 1):
        yield {"type": "http.request", "body": body, "more_body": number < len(bodies)}


def test_a_body_that_never_comes() -> None:
    async def run() -> list[dict[str, Any]]:
        sent: list[dict[str, Any]] = []
        given = iter([{"type": "http.request", "body": b"{", "more_body": True}])

        async def receive() -> dict[str, Any]:
            for message in given:
                return message
            await asyncio.sleep(60)
            raise AssertionError

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        await asyncio.wait_for(make_app(service(), ServerOptions(limits=LIMITS))(make_scope(), receive, send), 5)
        return sent

    sent = asyncio.run(run())
    assert sent[0]["status"] == 504
    assert b"did not arrive" in sent[1]["body"]


def test_a_client_that_goes_cancels_its_request() -> None:
    async def run() -> tuple[bool, list[Any]]:
        cancelled = asyncio.Event()
        sent: list[Any] = []

        class Waiting(InlineService):
            def __init__(self) -> None:
                self.is_ready = True

            async def infer(self, request: InferRequest) -> Any:
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    cancelled.set()
                    raise

        given = messages(json.dumps(document([1], [1, 1])).encode())

        async def receive() -> dict[str, Any]:
            for message in given:
                return message
            await asyncio.sleep(0.02)
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        await asyncio.wait_for(make_app(Waiting(), ServerOptions())(make_scope(), receive, send), 5)
        return cancelled.is_set(), sent

    assert asyncio.run(run()) == (True, [])


def test_a_server_that_stops_is_no_client_that_goes() -> None:
    """A task that others cancel stays cancelled."""

    async def run() -> None:
        async def receive() -> dict[str, Any]:
            await asyncio.sleep(60)
            raise AssertionError

        async def send(message: dict[str, Any]) -> None:
            raise AssertionError

        task = asyncio.ensure_future(make_app(service(), ServerOptions())(make_scope(), receive, send))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
