"""A stream of inference requests: they run at the same time, and their responses keep their order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Final

from dovetail_serve.grpc.request import read_or_note
from dovetail_serve.grpc.response import encode_stream_error, encode_stream_response
from dovetail_serve.options import Limits
from dovetail_serve.protocol.service import Service

__all__ = ["answer_stream"]

_MOST_AHEAD: Final = 32
"""How many requests of one stream are read before the first of them is answered."""


async def answer_stream(requests: AsyncIterator[bytes], service: Service, limits: Limits) -> AsyncGenerator[bytes]:
    """One response for each request, in the same order; an error is a response, and the stream goes on."""
    pending: asyncio.Queue[asyncio.Task[bytes] | None] = asyncio.Queue(_MOST_AHEAD)
    started: set[asyncio.Task[bytes]] = set()

    async def read_requests() -> None:
        failure = None
        try:
            async for data in requests:
                task = asyncio.ensure_future(_answer(data, service, limits))
                started.add(task)
                task.add_done_callback(started.discard)
                await pending.put(task)
        except Exception as error:  # noqa: BLE001 - it is raised once what came before is answered
            failure = error
        await pending.put(None)
        if failure is not None:
            raise failure

    reader = asyncio.ensure_future(read_requests())
    try:
        while (task := await pending.get()) is not None:
            yield await task
        await reader
    finally:
        for each in (reader, *started):
            each.cancel()
        await asyncio.gather(reader, *started, return_exceptions=True)


async def _answer(data: bytes, service: Service, limits: Limits) -> bytes:
    request_id = ""
    try:
        request = read_or_note(data, service, limits)
        request_id = request.id
        return encode_stream_response(await service.infer(request))
    except Exception as error:  # noqa: BLE001 - whatever fails is a response of the stream
        return encode_stream_error(error, request_id)
