"""The endpoint that runs models. It is the one that must be fast, so it finds its path itself, before all routes."""

from __future__ import annotations

from typing import Any, Final

from dovetail_serve.errors import ServeError
from dovetail_serve.http.body import read_body
from dovetail_serve.http.exchange import ClientGoneError, Exchange, Patience
from dovetail_serve.http.request import RequestReader
from dovetail_serve.http.response import encode_infer_response, send_error, send_response
from dovetail_serve.options import ServerOptions
from dovetail_serve.protocol.service import Service

__all__ = ["InferEndpoint", "find_target"]

Target = tuple[str, str]
_PREFIX: Final = "/v2/models/"
_SUFFIX: Final = "/infer"


def find_target(path: str) -> Target | None:
    """The model and the version whose inference a path names, the version empty for any; None for another path.

    >>> find_target("/v2/models/half/infer"), find_target("/v2/models/half/versions/3/infer")
    (('half', ''), ('half', '3'))
    >>> find_target("/v2/models/infer"), find_target("/v2/models/half/config")
    (None, None)
    """
    if not path.endswith(_SUFFIX) or not path.startswith(_PREFIX):
        return None
    model, *rest = path[len(_PREFIX) : -len(_SUFFIX)].split("/")
    if not rest:
        return (model, "") if model else None
    return (model, rest[1]) if model and len(rest) == 2 and rest[0] == "versions" and rest[1] else None


class InferEndpoint:
    """Answers ``POST /v2/models/{model}/infer``, and the same of a version."""

    def __init__(self, service: Service, options: ServerOptions) -> None:
        self._service = service
        self._most_bytes = options.limits.body_bytes
        self._reader = RequestReader(options.limits)
        self._patience = Patience(options.limits.idle_s)

    async def __call__(self, target: Target, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        headers = dict(scope["headers"])
        try:
            body, described = await self._answer(target, headers, receive)
        except ClientGoneError:
            return
        except Exception as error:  # noqa: BLE001 - whatever fails, the client is told in the protocol's form
            await send_error(send, error)
            return
        await send_response(send, body, described, headers.get(b"accept-encoding", b""))

    async def _answer(self, target: Target, headers: dict[bytes, bytes], receive: Any) -> tuple[bytes, Any]:
        exchange = Exchange(receive, self._patience)
        try:
            body = await read_body(headers, exchange, self._most_bytes)
            read = self._reader.read(headers, body, *target)
        except ServeError as error:
            self._service.note_unread(*target, error)
            raise
        response = await exchange.wait_for(self._service.infer(read.request))
        return encode_infer_response(response, read)
