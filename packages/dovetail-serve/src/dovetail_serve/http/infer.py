"""The endpoint that runs models. It is the one that must be fast, so it is an ASGI application of its own."""

from __future__ import annotations

from typing import Any

from dovetail_serve.http.body import read_body
from dovetail_serve.http.exchange import ClientGoneError, Exchange, Patience
from dovetail_serve.http.request import read_infer_request
from dovetail_serve.http.response import encode_infer_response, send_error, send_response
from dovetail_serve.options import ServerOptions
from dovetail_serve.protocol.service import Service

__all__ = ["InferEndpoint"]


class InferEndpoint:
    """Answers ``POST /v2/models/{model}/infer``."""

    def __init__(self, service: Service, options: ServerOptions) -> None:
        self._service = service
        self._limits = options.limits
        self._patience = Patience(options.limits.idle_s)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        headers = dict(scope["headers"])
        try:
            body, described = await self._answer(scope["path_params"], headers, receive)
        except ClientGoneError:
            return
        except Exception as error:  # noqa: BLE001 - whatever fails, the client is told in the protocol's form
            await send_error(send, error)
            return
        await send_response(send, body, described, headers.get(b"accept-encoding", b""))

    async def _answer(self, path: Any, headers: dict[bytes, bytes], receive: Any) -> tuple[bytes, Any]:
        limits = self._limits
        exchange = Exchange(receive, self._patience)
        body = await read_body(headers, exchange, limits.body_bytes)
        read = read_infer_request(headers, body, path["model"], path.get("version", ""), limits)
        response = await exchange.wait_for(self._service.infer(read.request))
        return encode_infer_response(response, read)
