"""The routes of the protocol, and what each asks the service."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Route

from dovetail_serve.errors import ForbiddenError, RequestError, UnsupportedError
from dovetail_serve.http.access import KeyMiddleware
from dovetail_serve.http.body import read_body
from dovetail_serve.http.exchange import ClientGoneError, Exchange, Patience
from dovetail_serve.http.infer import InferEndpoint, find_target
from dovetail_serve.http.response import send_error, send_json, send_response
from dovetail_serve.options import ServerOptions
from dovetail_serve.protocol.json_documents import (
    config_document,
    index_document,
    metadata_document,
    server_document,
    statistics_document,
)
from dovetail_serve.protocol.service import Service

__all__ = ["make_app"]

Answer = Callable[[dict[str, str], dict[str, Any]], Any]
App = Callable[[Any, Any, Any], Awaitable[None]]

_MODEL: Final = "/v2/models/{model}"
_VERSION: Final = "/v2/models/{model}/versions/{version}"
_CONTROL_BYTES: Final = 64 << 10
"""The largest body where no tensors are expected."""

_UNSUPPORTED: Final = {
    "/v2/systemsharedmemory": "shared memory",
    "/v2/cudasharedmemory": "shared memory",
    "/v2/trace/setting": "settings of traces",
    "/v2/models/{model}/trace/setting": "settings of traces",
    "/v2/logging": "settings of logs",
}


def make_app(service: Service, options: ServerOptions) -> App:
    """The application that serves ``service``."""
    app = _add_infer(_make_documents(service, options), InferEndpoint(service, options))
    return app if options.api_key is None else KeyMiddleware(app, options.api_key)


def _add_infer(documents: App, infer: InferEndpoint) -> App:
    """An application that runs models, and leaves everything else to another one."""

    def dispatch(scope: Any, receive: Any, send: Any) -> Awaitable[None]:
        target = find_target(scope["path"]) if scope["type"] == "http" else None
        if target is None:
            return documents(scope, receive, send)
        if scope["method"] != "POST":
            return _ErrorAnswer(HTTPException(405, headers={"Allow": "POST"}))(scope, receive, send)
        return infer(target, scope, receive, send)

    return dispatch


def _make_documents(service: Service, options: ServerOptions) -> App:
    app = Starlette(
        routes=[*_document_routes(service, options), *_unsupported_routes()],
        exception_handlers={HTTPException: _answer_http_error},
    )
    app.router.redirect_slashes = False
    documents: App = app
    return documents


def _document_routes(service: Service, options: ServerOptions) -> list[Route]:
    """The routes whose answers are small documents."""

    def get(path: str, answer: Answer) -> Route:
        return Route(path, _DocumentEndpoint(answer, options), methods=["GET"])

    def post(path: str, answer: Answer) -> Route:
        return Route(path, _DocumentEndpoint(answer, options), methods=["POST"])

    control = _Control(service, options)
    return [
        get("/v2", lambda path, body: server_document()),
        get("/v2/health/live", lambda path, body: {"live": True}),
        get("/v2/health/ready", lambda path, body: _Readiness(service.is_ready)),
        get("/v2/models/stats", lambda path, body: statistics_document(service.statistics())),
        *(
            get(f"{prefix}{suffix}", answer)
            for prefix in (_MODEL, _VERSION)
            for suffix, answer in _model_answers(service).items()
        ),
        post("/v2/repository/index", lambda path, body: index_document(service.index(ready_only=_ready_only(body)))),
        post("/v2/repository/models/{model}/load", control.load),
        post("/v2/repository/models/{model}/unload", control.unload),
    ]


def _model_answers(service: Service) -> dict[str, Answer]:
    return {
        "": lambda path, body: metadata_document(service.describe(**_named(path))),
        "/ready": lambda path, body: _Readiness(service.is_model_ready(**_named(path))),
        "/config": lambda path, body: config_document(service.configuration(**_named(path))),
        "/stats": lambda path, body: statistics_document(service.statistics(**_named(path))),
    }


def _named(path: dict[str, str]) -> dict[str, str]:
    return {"name": path["model"], "version": path.get("version", "")}


def _ready_only(body: dict[str, Any]) -> bool:
    return body.get("ready") is True


class _Readiness:
    """An answer that has a status of its own: 200 when ready, and 400 when not, as the protocol says."""

    def __init__(self, is_ready: bool) -> None:
        self.status = 200 if is_ready else 400
        self.document = {"ready": is_ready} if is_ready else {"ready": False, "error": "not ready"}


class _Control:
    """Loads and unloads models, where the server was started to let clients do so."""

    def __init__(self, service: Service, options: ServerOptions) -> None:
        self._service = service
        self._is_allowed = options.allow_control

    async def load(self, path: dict[str, str], body: dict[str, Any]) -> dict[str, Any]:
        self._check()
        if body.get("parameters"):
            raise UnsupportedError("a model is loaded as its repository has it", got="parameters that change it")
        await self._service.load(path["model"])
        return {}

    async def unload(self, path: dict[str, str], body: dict[str, Any]) -> dict[str, Any]:
        self._check()
        await self._service.unload(path["model"])
        return {}

    def _check(self) -> None:
        if not self._is_allowed:
            raise ForbiddenError(
                "clients may not load or unload models here", fix="start the server with --allow-control"
            )


class _DocumentEndpoint:
    """Reads a small body, asks, and sends the document."""

    def __init__(self, answer: Answer, options: ServerOptions) -> None:
        self._answer = answer
        self._patience = Patience(options.limits.idle_s)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = dict(scope["headers"])
        try:
            body = await read_body(headers, Exchange(receive, self._patience), _CONTROL_BYTES)
            found = self._answer(scope["path_params"], _decode(body) if scope["method"] == "POST" else {})
            if isinstance(found, Awaitable):
                found = await found
        except ClientGoneError:
            return
        except Exception as error:  # noqa: BLE001 - whatever fails, the client is told in the protocol's form
            await send_error(send, error)
            return
        if isinstance(found, _Readiness):
            await send_json(send, found.document, found.status)
        else:
            await send_json(send, found)


def _decode(body: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(body, type=dict[str, Any]) if body.strip() else {}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise RequestError("the body is no JSON object") from None


def _unsupported_routes() -> list[Route]:
    routes = []
    for path, what in _UNSUPPORTED.items():
        endpoint = _UnsupportedEndpoint(what)
        suffixes = ("", "/{rest:path}") if path.endswith("memory") else ("",)
        routes += [Route(f"{path}{suffix}", endpoint, methods=["GET", "POST"]) for suffix in suffixes]
    return routes


class _UnsupportedEndpoint:
    """Answers for an extension of the protocol that the server does not have."""

    def __init__(self, what: str) -> None:
        self._what = what

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        fix = "send tensors in requests" if "memory" in self._what else "set it where the server is started"
        await send_error(send, UnsupportedError(f"{self._what} over the protocol is not supported", fix=fix))


class _ErrorAnswer:
    """An answer to a path or a method that there is not."""

    def __init__(self, error: HTTPException) -> None:
        self._error = error

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-type", b"application/json")]
        allowed = (self._error.headers or {}).get("Allow")
        if allowed:
            headers.append((b"allow", allowed.encode()))
        text = {404: "there is nothing at this path", 405: "the path does not take this method"}
        document = {"error": text.get(self._error.status_code, "the request was refused")}
        await send_response(send, msgspec.json.encode(document), headers, status=self._error.status_code)


async def _answer_http_error(request: Any, error: HTTPException) -> _ErrorAnswer:
    return _ErrorAnswer(error)
