"""Logs: one line each, as JSON or text, with no value that a client sent."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Iterator

import numpy as np
import pytest

from dovetail_serve.errors import QueueFullError, RequestError, RunError, ServeError, UnknownModelError
from dovetail_serve.metrics.logs import set_up_logs
from dovetail_serve.metrics.observed import ObservedService, make_observer
from dovetail_serve.options import ServerOptions
from dovetail_serve.protocol.requests import InferRequest, InferResponse

SECRET = 31337.25


class AnsweringService:
    """Answers, fails or is cancelled, as the name of the model says."""

    def describe(self, name: str, version: str = "") -> None:
        if name != "m":
            raise UnknownModelError("there is none")

    def note_unread(self, model: str, version: str, error: ServeError) -> None:
        pass

    async def infer(self, request: InferRequest) -> InferResponse:
        if request.model == "full":
            raise QueueFullError("the queue is full")
        if request.model == "broken":
            raise RunError("the model failed") from ZeroDivisionError("why")
        if request.model == "slow":
            await asyncio.sleep(60)
        return InferResponse(request.model, "3", {"y": np.array([SECRET])}, request.id, 12_345, 67_890)


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    names = ("dovetail_serve", "dovetail.serve", "uvicorn.error", "grpc")
    kept = {name: (logging.getLogger(name).handlers, logging.getLogger(name).propagate) for name in names}
    yield io.StringIO()
    for name, (handlers, propagate) in kept.items():
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(logging.NOTSET)


def _service(*, log_requests: bool = True) -> ObservedService:
    options = ServerOptions(log_requests=log_requests)
    return ObservedService(AnsweringService(), make_observer(options))  # type: ignore[arg-type]


def _ask(service: ObservedService, model: str, **more: str) -> None:
    asyncio.run(service.infer(InferRequest(model, {"x": np.array([SECRET])}, **more)))


def _lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_request_is_one_line_of_json(stream: io.StringIO) -> None:
    set_up_logs(as_json=True, level=logging.INFO, stream=stream)
    _ask(_service(), "m", id="r-1")
    (line,) = _lines(stream)
    known = {key: line[key] for key in ("id", "model", "version", "status", "queue_us", "compute_us", "level")}
    assert known == {
        "id": "r-1", "model": "m", "version": "3", "status": 200, "queue_us": 12, "compute_us": 67, "level": "info",
    }  # fmt: skip
    assert isinstance(line["total_us"], int)
    assert str(SECRET) not in stream.getvalue()


def test_requests_are_not_logged_unless_asked_for(stream: io.StringIO) -> None:
    set_up_logs(as_json=True, level=logging.INFO, stream=stream)
    _ask(_service(log_requests=False), "m")
    assert stream.getvalue() == ""


def test_a_request_that_cannot_be_read_is_logged_without_what_it_held(stream: io.StringIO) -> None:
    set_up_logs(as_json=True, level=logging.INFO, stream=stream)
    service = _service()
    error = RequestError("a value does not fit the datatype", where="input 'x'", expected="BOOL", got=SECRET)
    service.note_unread("m", "2", error)
    service.note_unread("made up", "7", error)
    failed, request, *others = _lines(stream)
    assert failed["message"] == "request failed: input 'x': a value does not fit the datatype"
    assert (failed["model"], failed["version"], failed["status"]) == ("m", "2", 400)
    assert (request["message"], request["model"], request["status"]) == ("request", "m", 400)
    assert [line["model"] for line in others] == ["", ""], "clients could make up any number of names"
    assert service.failures == {("m", "RequestError"): 1, ("", "RequestError"): 1}
    assert str(SECRET) not in stream.getvalue()


def test_failures_are_always_logged_and_a_flood_is_counted(
    stream: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_up_logs(as_json=True, level=logging.INFO, stream=stream)
    service, now = _service(log_requests=False), [100.0]
    monkeypatch.setattr("dovetail_serve.metrics.logs.time.monotonic", lambda: now[0])
    for _ in range(5):
        with pytest.raises(QueueFullError):
            _ask(service, "full")
    now[0] += 2
    with pytest.raises(QueueFullError):
        _ask(service, "full")
    first, second = _lines(stream)
    assert (first["kind"], first["status"], first["level"]) == ("QueueFullError", 503, "warning")
    assert "more_before" not in first
    assert second["more_before"] == 4
    assert service.failures["full", "QueueFullError"] == 6


def test_what_the_server_did_wrong_is_an_error_with_its_cause(stream: io.StringIO) -> None:
    set_up_logs(as_json=True, level=logging.ERROR, stream=stream)
    with pytest.raises(RunError):
        _ask(_service(log_requests=False), "broken")
    (line,) = _lines(stream)
    assert line["level"] == "error"
    assert "ZeroDivisionError: why" in str(line["traceback"])


def test_a_client_that_goes_is_logged_as_such(stream: io.StringIO) -> None:
    set_up_logs(as_json=True, level=logging.INFO, stream=stream)

    async def leave() -> None:
        task = asyncio.create_task(_service().infer(InferRequest("slow", {})))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(leave())
    assert [line["status"] for line in _lines(stream)] == [499]


@pytest.mark.parametrize("as_json", [True, False])
def test_names_stay_on_their_line(stream: io.StringIO, as_json: bool) -> None:
    set_up_logs(as_json=as_json, level=logging.INFO, stream=stream)
    _ask(_service(), "m\n2026 error: forged\x1b[31m", id="x" * 5000)
    assert len(stream.getvalue().splitlines()) == 1
    assert "\x1b" not in stream.getvalue()
    assert len(stream.getvalue()) < 1000


def test_text_is_for_people(stream: io.StringIO) -> None:
    set_up_logs(as_json=False, level=logging.INFO, stream=stream)
    _ask(_service(), "m")
    assert " info: request model=m version=3 status=200 queue_us=12 compute_us=67 total_us=" in stream.getvalue()
