"""What each method of the inference service asks the service; messages come and go as bytes."""

from __future__ import annotations

from typing import Any, Final

from dovetail_serve.errors import DeadlineError, ForbiddenError, UnsupportedError
from dovetail_serve.grpc.messages import INFERENCE
from dovetail_serve.grpc.request import parse, read_or_note
from dovetail_serve.grpc.response import encode_document, encode_infer_response
from dovetail_serve.options import ServerOptions
from dovetail_serve.protocol.json_documents import (
    config_document,
    index_document,
    metadata_document,
    server_document,
    statistics_document,
)
from dovetail_serve.protocol.service import Service

__all__ = ["OPEN_METHODS", "UNSUPPORTED_METHODS", "InferenceMethods"]

OPEN_METHODS: Final = frozenset({"ServerLive", "ServerReady"})
"""What is answered without the API key, for the probes of orchestrators."""

UNSUPPORTED_METHODS: Final = {
    "SystemSharedMemoryStatus": "shared memory",
    "SystemSharedMemoryRegister": "shared memory",
    "SystemSharedMemoryUnregister": "shared memory",
    "CudaSharedMemoryStatus": "shared memory",
    "CudaSharedMemoryRegister": "shared memory",
    "CudaSharedMemoryUnregister": "shared memory",
    "TraceSetting": "settings of traces",
    "LogSettings": "settings of logs",
}


class InferenceMethods:
    """The methods that have one request and one response, by their names in the protocol."""

    def __init__(self, service: Service, options: ServerOptions) -> None:
        self._service = service
        self._options = options
        self.by_name: Final = {
            "ServerLive": self._server_live,
            "ServerReady": self._server_ready,
            "ServerMetadata": self._server_metadata,
            "ModelReady": self._model_ready,
            "ModelMetadata": self._model_metadata,
            "ModelInfer": self.infer,
            "ModelConfig": self._model_config,
            "ModelStatistics": self._model_statistics,
            "RepositoryIndex": self._index,
            "RepositoryModelLoad": self._load,
            "RepositoryModelUnload": self._unload,
        }

    async def infer(self, data: bytes, remaining_s: float | None) -> bytes:
        """Run a model."""
        if remaining_s is not None and remaining_s <= 0:
            raise DeadlineError("the deadline passed before the request was read")
        request = read_or_note(data, self._service, self._options.limits, remaining_s)
        return encode_infer_response(await self._service.infer(request))

    async def _server_live(self, data: bytes, remaining_s: float | None) -> bytes:
        return encode_document("ServerLiveResponse", {"live": True})

    async def _server_ready(self, data: bytes, remaining_s: float | None) -> bytes:
        return encode_document("ServerReadyResponse", {"ready": self._service.is_ready})

    async def _server_metadata(self, data: bytes, remaining_s: float | None) -> bytes:
        return encode_document("ServerMetadataResponse", server_document())

    async def _model_ready(self, data: bytes, remaining_s: float | None) -> bytes:
        asked = _parse("ModelReadyRequest", data)
        return encode_document("ModelReadyResponse", {"ready": self._service.is_model_ready(asked.name, asked.version)})

    async def _model_metadata(self, data: bytes, remaining_s: float | None) -> bytes:
        asked = _parse("ModelMetadataRequest", data)
        document = metadata_document(self._service.describe(asked.name, asked.version))
        return encode_document("ModelMetadataResponse", document)

    async def _model_config(self, data: bytes, remaining_s: float | None) -> bytes:
        asked = _parse("ModelConfigRequest", data)
        document = config_document(self._service.configuration(asked.name, asked.version))
        return encode_document("ModelConfigResponse", {"config": document})

    async def _model_statistics(self, data: bytes, remaining_s: float | None) -> bytes:
        asked = _parse("ModelStatisticsRequest", data)
        document = statistics_document(self._service.statistics(asked.name, asked.version))
        return encode_document("ModelStatisticsResponse", document)

    async def _index(self, data: bytes, remaining_s: float | None) -> bytes:
        asked = _parse("RepositoryIndexRequest", data)
        entries = self._service.index(ready_only=asked.ready)
        return encode_document("RepositoryIndexResponse", {"models": index_document(entries)})

    async def _load(self, data: bytes, remaining_s: float | None) -> bytes:
        asked = self._control("RepositoryModelLoadRequest", data)
        if asked.parameters:
            raise UnsupportedError("a model is loaded as its repository has it", got="parameters that change it")
        await self._service.load(asked.model_name)
        return b""

    async def _unload(self, data: bytes, remaining_s: float | None) -> bytes:
        await self._service.unload(self._control("RepositoryModelUnloadRequest", data).model_name)
        return b""

    def _control(self, message: str, data: bytes) -> Any:
        if not self._options.allow_control:
            raise ForbiddenError(
                "clients may not load or unload models here", fix="start the server with --allow-control"
            )
        return _parse(message, data)


def _parse(name: str, data: bytes) -> Any:
    return parse(INFERENCE[name](), data)
