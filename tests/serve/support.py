"""A service over real engines for the tests of HTTP and gRPC, and a server of it in a thread."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
import onnx
import onnx.helper as oh

import dovetail as dt
from dovetail_serve.errors import (
    DeadlineError,
    DrainingError,
    NotReadyError,
    QueueFullError,
    RequestError,
    RunError,
    ServeError,
    UnknownModelError,
)
from dovetail_serve.options import ServerOptions
from dovetail_serve.protocol.documents import (
    BatchStatistics,
    Duration,
    IndexEntry,
    ModelConfig,
    ModelMetadata,
    ModelStatistics,
    TensorMetadata,
)
from dovetail_serve.protocol.requests import InferRequest, InferResponse
from dovetail_serve.tensors.datatypes import DATATYPES

ONNX_NAMES = {
    "BOOL": "BOOL",
    "UINT8": "UINT8",
    "UINT16": "UINT16",
    "UINT32": "UINT32",
    "UINT64": "UINT64",
    "INT8": "INT8",
    "INT16": "INT16",
    "INT32": "INT32",
    "INT64": "INT64",
    "FP16": "FLOAT16",
    "BF16": "BFLOAT16",
    "FP32": "FLOAT",
    "FP64": "DOUBLE",
    "BYTES": "STRING",
}
SLOW_S = 0.25


def identity_model(datatype: str) -> onnx.ModelProto:
    """``y = x`` for any two dimensions."""
    kind = getattr(onnx.TensorProto, ONNX_NAMES[datatype])
    x, y = (oh.make_tensor_value_info(name, kind, ["rows", "columns"]) for name in "xy")
    graph = oh.make_graph([oh.make_node("Identity", ["x"], ["y"])], "identity", [x], [y])
    return oh.make_model(graph, opset_imports=[oh.make_opsetid("", 21)], ir_version=10)


def sums_model() -> onnx.ModelProto:
    """``sum = a + b`` and ``difference = a - b``."""
    names = ("a", "b", "sum", "difference")
    a, b, *outputs = (oh.make_tensor_value_info(name, onnx.TensorProto.INT32, ["n", 4]) for name in names)
    nodes = [oh.make_node("Add", ["a", "b"], ["sum"]), oh.make_node("Sub", ["a", "b"], ["difference"])]
    graph = oh.make_graph(nodes, "sums", [a, b], outputs)
    return oh.make_model(graph, opset_imports=[oh.make_opsetid("", 21)], ir_version=10)


@cache
def compiled(name: str) -> Any:
    """The engine of a model, built once a process."""
    return dt.compile(sums_model() if name == "sums" else identity_model(name))


class EngineModel:
    """One model: its engine, what clients see of it, and how it runs."""

    def __init__(self, name: str, kind: str, *, delay_s: float = 0.0, fails: bool = False) -> None:
        self.engine = compiled(kind)
        self.delay_s = delay_s
        self.fails = fails
        self.runs = 0
        self.is_loaded = True
        inputs, outputs = (("a", "b"), ("sum", "difference")) if kind == "sums" else (("x",), ("y",))
        datatype, shape = ("INT32", (-1, 4)) if kind == "sums" else (kind, (-1, -1))
        self.metadata = ModelMetadata(
            name,
            ("1", "2"),
            "dovetail_plan",
            tuple(TensorMetadata(each, datatype, shape) for each in inputs),
            tuple(TensorMetadata(each, datatype, shape) for each in outputs),
        )

    def run(self, inputs: Mapping[str, Any]) -> list[Any]:
        self.runs += 1
        time.sleep(self.delay_s)
        if self.fails:
            raise ZeroDivisionError("a secret of the engine")
        arrays = [_as_text(inputs[each.name]) for each in self.metadata.inputs]
        found = self.engine(*arrays)
        return list(found.values()) if isinstance(found, Mapping) else [found]


def _as_text(array: Any) -> Any:
    if array.dtype != object:
        return array
    texts = np.empty(array.shape, object)
    try:
        texts[...] = [[each.decode() for each in row] for row in array]
    except UnicodeDecodeError:
        raise RequestError("a string is no text in UTF-8") from None
    return texts


class EngineService:
    """Runs each request by itself in a thread; a queue of two behind the one slow model."""

    def __init__(self, kinds: Sequence[str] = tuple(DATATYPES)) -> None:
        self.models = {f"identity_{kind}": EngineModel(f"identity_{kind}", kind) for kind in kinds}
        self.models["sums"] = EngineModel("sums", "sums")
        self.models["slow"] = EngineModel("slow", "FP32", delay_s=SLOW_S)
        self.models["failing"] = EngineModel("failing", "FP32", fails=True)
        self.is_ready = True
        self.requests: list[InferRequest] = []
        self.unread: deque[tuple[str, str, str]] = deque(maxlen=4)
        """Model, version and kind of error of requests that could not be read."""
        self._waiting: dict[str, int] = {}
        self._threads = {name: ThreadPoolExecutor(1) for name in self.models}

    def _find(self, name: str, version: str = "") -> EngineModel:
        model = self.models.get(name)
        if model is None or version not in ("", *model.metadata.versions):
            raise UnknownModelError(f"Request for unknown model: '{name}' version '{version}' is not found")
        return model

    def is_model_ready(self, name: str, version: str = "") -> bool:
        return self._find(name, version).is_loaded

    def describe(self, name: str, version: str = "") -> ModelMetadata:
        return self._find(name, version).metadata

    def configuration(self, name: str, version: str = "") -> ModelConfig:
        metadata = self._find(name, version).metadata
        return ModelConfig(metadata, 8 if name == "sums" else 0, 2, 100, 16, 5000, {"origin": "test"})

    def statistics(self, name: str = "", version: str = "") -> list[ModelStatistics]:
        found = [self._find(name, version)] if name else list(self.models.values())
        return [self._statistics(each) for each in found]

    def _statistics(self, model: EngineModel) -> ModelStatistics:
        spent = Duration(model.runs, model.runs * 1000)
        nothing = Duration()
        batches = (BatchStatistics(1, nothing, spent, nothing),)
        name = model.metadata.name
        return ModelStatistics(
            name, "2", 17, model.runs, model.runs, spent, nothing, nothing, nothing, spent, nothing, batches=batches
        )

    def index(self, *, ready_only: bool = False) -> list[IndexEntry]:
        entries = [
            IndexEntry(name, "2", "READY" if model.is_loaded else "UNAVAILABLE", "" if model.is_loaded else "unloaded")
            for name, model in self.models.items()
        ]
        return [each for each in entries if each.state == "READY" or not ready_only]

    async def infer(self, request: InferRequest) -> InferResponse:
        if not self.is_ready:
            raise DrainingError("the server is stopping")
        model = self._find(request.model, request.version)
        if not model.is_loaded:
            raise NotReadyError(f"model '{request.model}' is not ready")
        self._check(request, model)
        self.requests.append(request)
        outputs = await self._wait(request, model)
        wanted = outputs if request.outputs is None else {name: outputs[name] for name in request.outputs}
        return InferResponse(request.model, request.version or "2", wanted, request.id)

    def _check(self, request: InferRequest, model: EngineModel) -> None:
        names = {each.name: each.datatype for each in model.metadata.inputs}
        if set(names) != set(request.inputs):
            raise RequestError("wrong inputs", expected=sorted(names), got=sorted(request.inputs)[:8])
        for name, array in request.inputs.items():
            if array.dtype != DATATYPES[names[name]].dtype or array.ndim != 2:
                raise RequestError("wrong datatype or shape", where=f"input '{name}'", expected=names[name])
        if request.model == "sums" and any(each.shape[1] != 4 for each in request.inputs.values()):
            raise RequestError("wrong shape", expected=(-1, 4))
        unknown = set(request.outputs or ()) - {each.name for each in model.metadata.outputs}
        if unknown:
            raise RequestError("unexpected inference output", got=sorted(unknown)[0])

    async def _wait(self, request: InferRequest, model: EngineModel) -> dict[str, Any]:
        if self._waiting.get(request.model, 0) >= (3 if request.model == "slow" else 256):
            raise QueueFullError(f"the queue of model '{request.model}' is full")
        self._waiting[request.model] = self._waiting.get(request.model, 0) + 1
        try:
            found = await self._run(request, model)
        finally:
            self._waiting[request.model] -= 1
        return dict(zip((each.name for each in model.metadata.outputs), found, strict=True))

    async def _run(self, request: InferRequest, model: EngineModel) -> list[Any]:
        work = self._threads[request.model].submit(model.run, request.inputs)
        future = asyncio.wrap_future(work)
        try:
            if request.timeout_us:
                await asyncio.wait([future], timeout=request.timeout_us / 1e6)
                if work.cancel():
                    raise DeadlineError("the request waited longer than it may")
            return await future
        except asyncio.CancelledError:
            # A wait that is cancelled leaves what it waits for in the queue.
            work.cancel()
            raise
        except ZeroDivisionError as error:
            raise RunError("the model failed") from error

    def note_unread(self, model: str, version: str, error: ServeError) -> None:
        self.unread.append((model, version, type(error).__name__))

    async def load(self, name: str) -> None:
        self._find(name).is_loaded = True

    async def unload(self, name: str) -> None:
        self._find(name).is_loaded = False

    async def drain(self) -> None:
        self.is_ready = False


class LiveServer:
    """HTTP and gRPC on free ports of the loopback, in a thread."""

    def __init__(self, service: Any, options: ServerOptions | None = None) -> None:
        self._service = service
        self._options = options or ServerOptions()
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.http_port = self.grpc_port = 0

    def __enter__(self) -> LiveServer:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self.loop).result(60)
        return self

    async def _start(self) -> None:
        import uvicorn

        from dovetail_serve.grpc import make_grpc_server
        from dovetail_serve.http import make_app

        listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listening.bind(("127.0.0.1", 0))
        self.http_port = listening.getsockname()[1]
        config = uvicorn.Config(
            make_app(self._service, self._options),
            interface="asgi3",
            http="h11",
            log_config=None,
            access_log=False,
            ws="none",
            lifespan="off",
        )
        self._http = uvicorn.Server(config)
        self._serving = self.loop.create_task(self._http._serve([listening]))
        self._grpc = make_grpc_server(self._service, self._options)
        self.grpc_port = self._grpc.add_insecure_port("127.0.0.1:0")
        await self._grpc.start()

    def __exit__(self, *unused: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self.loop).result(60)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(60)
        self.loop.close()

    async def _stop(self) -> None:
        await self._grpc.stop(0.1)
        self._http.should_exit = True
        self._http.force_exit = True
        await self._serving
