"""What an unmodified tritonclient gets from the server: one table of named checks.

It runs in the environment of tritonclient, which has other versions of packages than ours:
``python checks.py '{"http": 8000, "grpc": 8001, "locked_http": ..., "locked_grpc": ...}'`` prints the outcome of each
check as JSON. Importing it needs nothing of tritonclient.
"""

from __future__ import annotations

import asyncio
import json
import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

KEY = "the key of the locked server"
DATATYPES = (
    "BOOL",
    "UINT8",
    "UINT16",
    "UINT32",
    "UINT64",
    "INT8",
    "INT16",
    "INT32",
    "INT64",
    "FP16",
    "BF16",
    "FP32",
    "FP64",
    "BYTES",
)
CHECKS: dict[str, Callable[[SimpleNamespace], None]] = {}


def check(function: Callable[..., None]) -> Callable[..., None]:
    """Put a check into the table; one with a parameter ``way`` is there for HTTP and for gRPC."""
    name = function.__name__.replace("_", " ")
    if "way" in function.__code__.co_varnames[: function.__code__.co_argcount]:
        for way in ("http", "grpc"):
            CHECKS[f"{way}: {name}"] = partial(function, way=way)
    else:
        CHECKS[name] = function
    return function


def for_each_datatype(function: Callable[..., None]) -> Callable[..., None]:
    for datatype in DATATYPES:
        name = f"{function.__name__.replace('_', ' ')}: {datatype}"
        if datatype in ("FP16", "BF16") and "json" in name:
            continue  # tritonclient sends these as raw bytes alone
        CHECKS[name] = partial(function, datatype=datatype)
    return function


def sample(datatype: str) -> Any:
    import numpy as np

    if datatype == "BYTES":
        return np.array([["", "plain", "\u00fc\u4e16"], ["a,b[", '"q"', "x" * 300]], dtype=object)
    if datatype == "BF16":
        import ml_dtypes

        return np.array([[0, 1.5, -2], [np.nan, np.inf, 7]], ml_dtypes.bfloat16)
    dtype = np.dtype(
        {"FP": "float", "UI": "uint", "IN": "int", "BO": "bool"}[datatype[:2]] + datatype.lstrip("BFINOPTUL")
    )
    if dtype.kind == "b":
        return np.array([[True, False, True], [False, False, True]])
    if dtype.kind == "f":
        return np.array([[0, 1.5, -2.25], [np.nan, np.inf, -np.inf]], dtype)
    least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    return np.array([[0, 1, 2], [least, most, most - 1]], dtype)


def same(got: Any, sent: Any) -> None:
    import numpy as np

    if sent.dtype == object:
        assert [_bytes(each) for each in got.ravel()] == [_bytes(each) for each in sent.ravel()], got
    else:
        assert got.dtype == sent.dtype, got.dtype
        np.testing.assert_array_equal(got.view(np.uint8), sent.view(np.uint8))
    assert got.shape == sent.shape


def _bytes(each: str | bytes) -> bytes:
    return each.encode() if isinstance(each, str) else each


def tensor(kit: Any, name: str, array: Any, datatype: str, **how: Any) -> Any:
    made = kit.InferInput(name, list(array.shape), datatype)
    made.set_data_from_numpy(array, **how)
    return made


def pair(kit: Any, rows: int = 2) -> tuple[Any, Any, list[Any]]:
    import numpy as np

    a = np.arange(rows * 4, dtype=np.int32).reshape(rows, 4)
    b = np.ones((rows, 4), np.int32)
    return a, b, [tensor(kit, "a", a, "INT32"), tensor(kit, "b", b, "INT32")]


def refused(call: Callable[[], Any], *texts: str, status: str = "") -> Any:
    from tritonclient.utils import InferenceServerException

    error = None
    try:
        call()
    except InferenceServerException as raised:
        error = raised
    assert error is not None, "nothing was refused"
    for text in texts:
        assert text in error.message(), error.message()
    assert status in str(error.status()), error.status()
    return error


def way_status(way: str, http: str, grpc: str) -> str:
    return http if way == "http" else grpc


# Tensors


@for_each_datatype
def http_binary(to: SimpleNamespace, datatype: str) -> None:
    sent = sample(datatype)
    result = to.http.infer(f"identity_{datatype}", [tensor(to.httpkit, "x", sent, datatype, binary_data=True)])
    same(result.as_numpy("y"), sent)


@for_each_datatype
def http_json(to: SimpleNamespace, datatype: str) -> None:
    sent = sample(datatype)
    wanted = [to.httpkit.InferRequestedOutput("y", binary_data=False)]
    given = tensor(to.httpkit, "x", sent, datatype, binary_data=False)
    same(to.http.infer(f"identity_{datatype}", [given], outputs=wanted).as_numpy("y"), sent)


@for_each_datatype
def grpc_raw(to: SimpleNamespace, datatype: str) -> None:
    sent = sample(datatype)
    result = to.grpc.infer(f"identity_{datatype}", [tensor(to.grpckit, "x", sent, datatype)])
    same(result.as_numpy("y"), sent)


@for_each_datatype
def grpc_typed_json(to: SimpleNamespace, datatype: str) -> None:
    """Typed contents, which tritonclient does not write itself; its messages do."""
    from tritonclient.grpc import service_pb2 as messages

    sent = sample(datatype)
    request = messages.ModelInferRequest(model_name=f"identity_{datatype}")
    given = request.inputs.add(name="x", datatype=datatype, shape=sent.shape)
    values = [_bytes(each) for each in sent.ravel()] if datatype == "BYTES" else sent.ravel().tolist()
    getattr(given.contents, to.contents[datatype]).extend(values)
    response = to.grpc._client_stub.ModelInfer(request)
    same(to.grpckit.InferResult(response).as_numpy("y"), sent)


@check
def json_in_and_binary_out(to: SimpleNamespace) -> None:
    sent = sample("INT64")
    result = to.http.infer("identity_INT64", [tensor(to.httpkit, "x", sent, "INT64", binary_data=False)])
    same(result.as_numpy("y"), sent)


@check
def binary_in_and_json_out(to: SimpleNamespace) -> None:
    sent = sample("UINT64")
    wanted = [to.httpkit.InferRequestedOutput("y", binary_data=False)]
    given = [tensor(to.httpkit, "x", sent, "UINT64", binary_data=True)]
    same(to.http.infer("identity_UINT64", given, outputs=wanted).as_numpy("y"), sent)


@check
def one_input_as_json_and_one_as_binary(to: SimpleNamespace) -> None:
    a, b, given = pair(to.httpkit)
    given[0].set_data_from_numpy(a, binary_data=False)
    wanted = [to.httpkit.InferRequestedOutput("sum", binary_data=False), to.httpkit.InferRequestedOutput("difference")]
    result = to.http.infer("sums", given, outputs=wanted)
    same(result.as_numpy("sum"), a + b)
    same(result.as_numpy("difference"), a - b)


@check
def tensors_without_elements(to: SimpleNamespace, way: str) -> None:
    import numpy as np

    kit, client = to.way(way)
    sent = np.empty((0, 3), np.float32)
    same(client.infer("identity_FP32", [tensor(kit, "x", sent, "FP32")]).as_numpy("y"), sent)


@check
def a_megabyte(to: SimpleNamespace, way: str) -> None:
    import numpy as np

    kit, client = to.way(way)
    sent = np.random.default_rng(7).standard_normal((512, 512)).astype(np.float32)
    same(client.infer("identity_FP32", [tensor(kit, "x", sent, "FP32")]).as_numpy("y"), sent)


# Requests


@check
def two_inputs_and_two_outputs(to: SimpleNamespace, way: str) -> None:
    kit, client = to.way(way)
    a, b, given = pair(kit)
    result = client.infer("sums", given)
    same(result.as_numpy("sum"), a + b)
    same(result.as_numpy("difference"), a - b)


@check
def only_the_outputs_asked_for(to: SimpleNamespace, way: str) -> None:
    kit, client = to.way(way)
    a, b, given = pair(kit)
    result = client.infer("sums", given, outputs=[kit.InferRequestedOutput("difference")])
    same(result.as_numpy("difference"), a - b)
    assert result.as_numpy("sum") is None


@check
def the_id_comes_back(to: SimpleNamespace, way: str) -> None:
    kit, client = to.way(way)
    response = client.infer("sums", pair(kit)[2], request_id="request 7").get_response()
    assert (response["id"] if way == "http" else response.id) == "request 7"


@check
def the_version_asked_for(to: SimpleNamespace, way: str) -> None:
    kit, client = to.way(way)
    for asked, served in (("1", "1"), ("2", "2"), ("", "2")):
        response = client.infer("sums", pair(kit)[2], model_version=asked).get_response()
        assert (response["model_version"] if way == "http" else response.model_version) == served


@check
def priority_timeout_and_parameters(to: SimpleNamespace, way: str) -> None:
    kit, client = to.way(way)
    a, b, given = pair(kit)
    mine = {"text": "a", "number": 3, "flag": True}
    same(client.infer("sums", given, priority=1, timeout=5_000_000, parameters=mine).as_numpy("sum"), a + b)


@check
def sequences_are_refused(to: SimpleNamespace, way: str) -> None:
    kit, client = to.way(way)
    call = partial(client.infer, "sums", pair(kit)[2], sequence_id=5, sequence_start=True)
    refused(call, "sequences of requests", "not supported", status=way_status(way, "400", "UNIMPLEMENTED"))


@check
def classification_is_refused(to: SimpleNamespace, way: str) -> None:
    kit, client = to.way(way)
    call = partial(client.infer, "sums", pair(kit)[2], outputs=[kit.InferRequestedOutput("sum", class_count=2)])
    refused(call, "classification", "not supported", status=way_status(way, "400", "UNIMPLEMENTED"))


@check
def compressed_requests(to: SimpleNamespace) -> None:
    a, b, given = pair(to.httpkit, 500)
    for algorithm in ("gzip", "deflate"):
        same(to.http.infer("sums", given, request_compression_algorithm=algorithm).as_numpy("sum"), a + b)


@check
def compressed_responses(to: SimpleNamespace) -> None:
    a, b, given = pair(to.httpkit, 500)
    for algorithm in ("gzip", "deflate"):
        result = to.http.infer("sums", given, response_compression_algorithm=algorithm)
        same(result.as_numpy("sum"), a + b)


@check
def compression_of_grpc(to: SimpleNamespace) -> None:
    a, b, given = pair(to.grpckit, 500)
    for algorithm in ("gzip", "deflate"):
        same(to.grpc.infer("sums", given, compression_algorithm=algorithm).as_numpy("sum"), a + b)


@check
def a_body_made_and_a_response_parsed_by_the_client(to: SimpleNamespace) -> None:
    import urllib.request

    a, b, given = pair(to.httpkit)
    client = to.httpkit.InferenceServerClient
    body, size = client.generate_request_body(given)
    headers = {"Inference-Header-Content-Length": str(size)} if size else {}
    request = urllib.request.Request(f"http://{to.http_address}/v2/models/sums/infer", body, headers)
    with urllib.request.urlopen(request) as answer:
        length = answer.headers["Inference-Header-Content-Length"]
        result = client.parse_response_body(answer.read(), header_length=int(length))
    same(result.as_numpy("sum"), a + b)


# At the same time


@check
def async_infer_of_many(to: SimpleNamespace, way: str) -> None:
    kit, client = to.way(way)
    a, b, given = pair(kit)
    if way == "http":
        results = [each.get_result() for each in [client.async_infer("sums", given) for _ in range(24)]]
    else:
        done: queue.Queue[Any] = queue.Queue()
        for _ in range(24):
            client.async_infer("sums", given, callback=lambda result, error: done.put(error or result))
        results = [done.get(timeout=20) for _ in range(24)]
    for each in results:
        same(each.as_numpy("sum"), a + b)


@check
def asyncio_client(to: SimpleNamespace, way: str) -> None:
    asyncio.run(_use_asyncio_client(to, way))


async def _use_asyncio_client(to: SimpleNamespace, way: str) -> None:
    if way == "http":
        import tritonclient.http.aio as kit
    else:
        import tritonclient.grpc.aio as kit
    async with kit.InferenceServerClient(getattr(to, f"{way}_address")) as client:
        assert await client.is_server_live()
        assert await client.is_server_ready()
        assert await client.is_model_ready("sums")
        assert (await client.get_model_config("sums")) is not None
        a, b, given = pair(kit)
        for result in await asyncio.gather(*(client.infer("sums", given, request_id=str(n)) for n in range(8))):
            same(result.as_numpy("sum"), a + b)


@check
def threads_with_clients_of_their_own(to: SimpleNamespace, way: str) -> None:
    failures: list[BaseException] = []

    def work() -> None:
        try:
            kit, _ = to.way(way)
            client = kit.InferenceServerClient(getattr(to, f"{way}_address"))
            a, b, given = pair(kit)
            for _ in range(5):
                same(client.infer("sums", given).as_numpy("sum"), a + b)
            client.close()
        except BaseException as error:  # noqa: BLE001 - whatever fails in the thread fails the check
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(30)
    assert not failures, failures


@check
def a_full_queue(to: SimpleNamespace, way: str) -> None:
    import numpy as np

    kit, client = to.way(way)
    given = [tensor(kit, "x", np.ones((1, 1), np.float32), "FP32")]
    if way == "http":
        asked = [client.async_infer("slow", given) for _ in range(6)]
        outcomes = [_outcome(each.get_result) for each in asked]
    else:
        done: queue.Queue[Any] = queue.Queue()
        for _ in range(6):
            client.async_infer("slow", given, callback=lambda result, error: done.put(error or result))
        outcomes = [str(done.get(timeout=20)) for _ in range(6)]
    full = [each for each in outcomes if "is full" in each]
    assert len(full) == 3, outcomes
    assert all(way_status(way, "503", "UNAVAILABLE") in each for each in full), full


def _outcome(call: Callable[[], Any]) -> str:
    try:
        return str(call())
    except Exception as error:  # noqa: BLE001 - the outcome is what is looked at
        return str(error)


# Streams


@check
def a_stream_keeps_its_order(to: SimpleNamespace) -> None:
    import numpy as np

    answers: queue.Queue[Any] = queue.Queue()
    client = to.grpckit.InferenceServerClient(to.grpc_address)
    client.start_stream(callback=lambda result, error: answers.put((result, error)))
    for number in range(20):
        name, datatype = ("slow", "FP32") if number == 0 else ("identity_FP32", "FP32")
        sent = np.full((1, 1), number, np.float32)
        client.async_stream_infer(name, [tensor(to.grpckit, "x", sent, datatype)], request_id=str(number))
    got = [answers.get(timeout=20) for _ in range(20)]
    client.stop_stream()
    assert [result.get_response().id for result, _ in got] == [str(each) for each in range(20)]
    assert [int(result.as_numpy("y")[0, 0]) for result, _ in got] == list(range(20))
    assert all(result.get_response().parameters["triton_final_response"].bool_param for result, _ in got)


@check
def an_error_does_not_end_a_stream(to: SimpleNamespace) -> None:
    import numpy as np

    answers: queue.Queue[Any] = queue.Queue()
    client = to.grpckit.InferenceServerClient(to.grpc_address)
    client.start_stream(callback=lambda result, error: answers.put((result, error)))
    given = [tensor(to.grpckit, "x", np.ones((1, 1), np.float32), "FP32")]
    for name in ("identity_FP32", "missing", "identity_FP32"):
        client.async_stream_infer(name, given)
    got = [answers.get(timeout=20) for _ in range(3)]
    client.stop_stream()
    assert [error is None for _, error in got] == [True, False, True]
    assert "unknown model" in got[1][1].message()


@check
def a_stream_with_asyncio(to: SimpleNamespace) -> None:
    asyncio.run(_use_asyncio_stream(to))


async def _use_asyncio_stream(to: SimpleNamespace) -> None:
    import tritonclient.grpc.aio as kit

    a, b, given = pair(kit)

    async def requests() -> Any:
        for number in range(5):
            yield {"model_name": "sums", "inputs": given, "request_id": str(number)}

    async with kit.InferenceServerClient(to.grpc_address) as client:
        got = [each async for each in client.stream_infer(requests())]
    assert [result.get_response().id for result, _ in got] == ["0", "1", "2", "3", "4"]
    for result, error in got:
        assert error is None
        same(result.as_numpy("sum"), a + b)


@check
def a_cancelled_stream_ends(to: SimpleNamespace) -> None:
    import numpy as np

    client = to.grpckit.InferenceServerClient(to.grpc_address)
    answers: queue.Queue[Any] = queue.Queue()
    client.start_stream(callback=lambda result, error: answers.put(error or result))
    client.async_stream_infer("slow", [tensor(to.grpckit, "x", np.ones((1, 1), np.float32), "FP32")])
    client.stop_stream(cancel_requests=True)
    assert "ancel" in str(answers.get(timeout=20))
    _wait_until_idle(to)


# Time


@check
def a_timeout_in_the_queue(to: SimpleNamespace, way: str) -> None:
    """The second request may not wait as long as the first one runs; it never runs."""
    import numpy as np

    _wait_until_idle(to)
    kit, client = to.way(way)
    given = [tensor(kit, "x", np.ones((1, 1), np.float32), "FP32")]
    before = _runs(to, "slow")
    first = _start(client, way, given)
    time.sleep(0.05)
    call = partial(client.infer, "slow", given, timeout=20_000)
    refused(call, "waited longer", status=way_status(way, "504", "DEADLINE_EXCEEDED"))
    first()
    assert _runs(to, "slow") == before + 1


def _start(client: Any, way: str, given: Any) -> Callable[[], Any]:
    if way == "http":
        asked = client.async_infer("slow", given)
        return asked.get_result
    done: queue.Queue[Any] = queue.Queue()
    client.async_infer("slow", given, callback=lambda result, error: done.put(error or result))
    return partial(done.get, timeout=20)


def _runs(to: SimpleNamespace, model: str) -> int:
    return to.http.get_inference_statistics(model)["model_stats"][0]["execution_count"]


def _wait_until_idle(to: SimpleNamespace) -> None:
    import numpy as np

    given = [tensor(to.httpkit, "x", np.ones((1, 1), np.float32), "FP32")]
    for _ in range(40):
        if "is full" not in _outcome(partial(to.http.infer, "slow", given)):
            return
        time.sleep(0.1)
    raise AssertionError("the slow model stays busy")


@check
def a_deadline_of_grpc(to: SimpleNamespace) -> None:
    import numpy as np

    _wait_until_idle(to)
    given = [tensor(to.grpckit, "x", np.ones((1, 1), np.float32), "FP32")]
    refused(partial(to.grpc.infer, "slow", given, client_timeout=0.05), status="DEADLINE_EXCEEDED")


@check
def a_cancelled_request_of_grpc_never_runs(to: SimpleNamespace) -> None:
    import numpy as np

    _wait_until_idle(to)
    given = [tensor(to.grpckit, "x", np.ones((1, 1), np.float32), "FP32")]
    before = _runs(to, "slow")
    first = _start(to.grpc, "grpc", given)
    time.sleep(0.05)
    done: queue.Queue[Any] = queue.Queue()
    to.grpc.async_infer("slow", given, callback=lambda result, error: done.put(error)).cancel()
    assert "ancel" in str(done.get(timeout=20))
    first()
    _wait_until_idle(to)
    assert _runs(to, "slow") == before + 2


@check
def a_client_of_http_that_goes_never_runs(to: SimpleNamespace) -> None:
    """What waits behind another request is taken out of the queue when its client closes the connection."""
    import socket

    import numpy as np

    _wait_until_idle(to)
    given = [tensor(to.httpkit, "x", np.ones((1, 1), np.float32), "FP32")]
    before = _runs(to, "slow")
    first = _start(to.http, "http", given)
    time.sleep(0.05)
    body = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1,1],"data":[1]}]}'
    host, port = to.http_address.split(":")
    with socket.create_connection((host, int(port))) as raw:
        raw.sendall(b"POST /v2/models/slow/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        time.sleep(0.05)
    first()
    _wait_until_idle(to)
    assert _runs(to, "slow") == before + 2


# Errors


@check
def an_unknown_model(to: SimpleNamespace, way: str) -> None:
    kit, client = to.way(way)
    status = way_status(way, "404", "NOT_FOUND")
    refused(partial(client.infer, "missing", pair(kit)[2]), "unknown model", "missing", status=status)
    refused(partial(client.get_model_metadata, "missing"), "unknown model", status=status)
    refused(partial(client.get_model_config, "missing"), "unknown model", status=status)


@check
def an_unknown_version(to: SimpleNamespace, way: str) -> None:
    kit, client = to.way(way)
    call = partial(client.infer, "sums", pair(kit)[2], model_version="9")
    refused(call, "version '9'", status=way_status(way, "404", "NOT_FOUND"))


@check
def a_wrong_datatype(to: SimpleNamespace, way: str) -> None:
    kit, client = to.way(way)
    call = partial(client.infer, "identity_FP32", [tensor(kit, "x", sample("INT8"), "INT8")])
    refused(call, "input 'x'", status=way_status(way, "400", "INVALID_ARGUMENT"))


@check
def a_missing_input(to: SimpleNamespace, way: str) -> None:
    kit, client = to.way(way)
    call = partial(client.infer, "sums", pair(kit)[2][:1])
    refused(call, "wrong inputs", status=way_status(way, "400", "INVALID_ARGUMENT"))


@check
def a_shape_that_does_not_fit_the_bytes(to: SimpleNamespace, way: str) -> None:
    kit, client = to.way(way)
    given = tensor(kit, "x", sample("FP32"), "FP32")
    given.set_shape([7, 9])
    refused(
        partial(client.infer, "identity_FP32", [given]),
        "252 bytes for [7, 9] of FP32",
        "24 bytes",
        status=way_status(way, "400", "INVALID_ARGUMENT"),
    )


@check
def an_output_that_is_not_there(to: SimpleNamespace, way: str) -> None:
    kit, client = to.way(way)
    call = partial(client.infer, "sums", pair(kit)[2], outputs=[kit.InferRequestedOutput("product")])
    refused(call, "product", status=way_status(way, "400", "INVALID_ARGUMENT"))


@check
def a_model_that_fails(to: SimpleNamespace, way: str) -> None:
    kit, client = to.way(way)
    call = partial(client.infer, "failing", [tensor(kit, "x", sample("FP32"), "FP32")])
    error = refused(call, "the model failed", status=way_status(way, "500", "INTERNAL"))
    assert "secret" not in str(error)


@check
def a_body_over_the_limit(to: SimpleNamespace, way: str) -> None:
    import numpy as np

    kit, client = to.way(way)
    call = partial(client.infer, "identity_FP32", [tensor(kit, "x", np.ones((1024, 1100), np.float32), "FP32")])
    refused(call, "larger than", status=way_status(way, "413", "RESOURCE_EXHAUSTED"))


# What the server says of itself


@check
def health(to: SimpleNamespace, way: str) -> None:
    client = to.way(way)[1]
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("sums")
    assert client.is_model_ready("sums", "1")


@check
def a_model_that_is_not_there_is_not_ready(to: SimpleNamespace) -> None:
    assert not to.http.is_model_ready("missing")


@check
def server_metadata(to: SimpleNamespace, way: str) -> None:
    found = _as_json(to, way, "get_server_metadata")
    assert found["name"] == "dovetail"
    assert {"binary_tensor_data", "statistics", "model_repository"} <= set(found["extensions"])


@check
def model_metadata(to: SimpleNamespace, way: str) -> None:
    found = _as_json(to, way, "get_model_metadata", "sums")
    assert found["versions"] == ["1", "2"]
    assert [each["name"] for each in found["inputs"]] == ["a", "b"]
    assert found["inputs"][0]["datatype"] == "INT32"
    assert [int(each) for each in found["inputs"][0]["shape"]] == [-1, 4]


@check
def model_config(to: SimpleNamespace, way: str) -> None:
    found = _as_json(to, way, "get_model_config", "sums")
    found = found.get("config", found)
    assert found["max_batch_size"] == 8
    assert found["input"][0]["data_type"] == "TYPE_INT32"
    assert [int(each) for each in found["input"][0]["dims"]] == [4]
    assert int(found["dynamic_batching"]["max_queue_delay_microseconds"]) == 100
    assert found["instance_group"][0]["count"] == 2
    assert found["parameters"]["origin"]["string_value"] == "test"


@check
def statistics(to: SimpleNamespace, way: str) -> None:
    kit, client = to.way(way)
    before = _as_json(to, way, "get_inference_statistics", "sums")["model_stats"][0]
    client.infer("sums", pair(kit)[2])
    after = _as_json(to, way, "get_inference_statistics", "sums")["model_stats"][0]
    assert int(after["inference_count"]) == int(before.get("inference_count", 0)) + 1
    assert int(after["inference_stats"]["success"]["count"]) == int(after["inference_count"])
    assert int(after["batch_stats"][0]["batch_size"]) == 1
    everything = _as_json(to, way, "get_inference_statistics")["model_stats"]
    assert len(everything) > 10


def _as_json(to: SimpleNamespace, way: str, method: str, *arguments: str) -> Any:
    client = to.way(way)[1]
    return getattr(client, method)(*arguments, **({} if way == "http" else {"as_json": True}))


# The repository


@check
def repository_index(to: SimpleNamespace, way: str) -> None:
    found = _as_json(to, way, "get_model_repository_index")
    found = found if way == "http" else found["models"]
    states = {each["name"]: each["state"] for each in found}
    assert states["sums"] == "READY"


@check
def unload_and_load(to: SimpleNamespace, way: str) -> None:
    kit, client = to.way(way)
    client.unload_model("identity_UINT8")
    assert not client.is_model_ready("identity_UINT8")
    call = partial(client.infer, "identity_UINT8", [tensor(kit, "x", sample("UINT8"), "UINT8")])
    refused(call, "not ready", status=way_status(way, "503", "UNAVAILABLE"))
    client.load_model("identity_UINT8")
    assert client.is_model_ready("identity_UINT8")


@check
def a_config_sent_with_load_is_refused(to: SimpleNamespace, way: str) -> None:
    client = to.way(way)[1]
    call = partial(client.load_model, "sums", config='{"max_batch_size": 4}')
    refused(call, "as its repository has it", status=way_status(way, "400", "UNIMPLEMENTED"))


@check
def load_where_it_is_not_allowed(to: SimpleNamespace, way: str) -> None:
    client = to.locked(way)
    headers = {"authorization": f"Bearer {KEY}"}
    status = way_status(way, "403", "PERMISSION_DENIED")
    refused(partial(client.load_model, "sums", headers=headers), "may not load", status=status)
    refused(partial(client.unload_model, "sums", headers=headers), "may not load", status=status)


# What the server does not have


@check
def shared_memory_is_refused(to: SimpleNamespace, way: str) -> None:
    client = to.way(way)[1]
    status = way_status(way, "400", "UNIMPLEMENTED")
    refused(partial(client.register_system_shared_memory, "r", "/key", 64), "shared memory", status=status)
    refused(client.get_system_shared_memory_status, "shared memory", status=status)
    refused(client.unregister_system_shared_memory, "shared memory", status=status)
    refused(partial(client.register_cuda_shared_memory, "r", b"aGFuZGxl", 0, 64), "shared memory", status=status)
    refused(client.get_cuda_shared_memory_status, "shared memory", status=status)


@check
def a_tensor_in_shared_memory_is_refused(to: SimpleNamespace, way: str) -> None:
    kit, client = to.way(way)
    given = kit.InferInput("x", [1, 1], "FP32")
    given.set_shared_memory("region", 4)
    refused(partial(client.infer, "identity_FP32", [given]), "shared memory", "not supported")


@check
def settings_of_traces_and_logs_are_refused(to: SimpleNamespace, way: str) -> None:
    client = to.way(way)[1]
    status = way_status(way, "400", "UNIMPLEMENTED")
    refused(client.get_trace_settings, "traces", status=status)
    refused(partial(client.update_trace_settings, "sums", {"trace_rate": "1"}), "traces", status=status)
    refused(client.get_log_settings, "logs", status=status)
    refused(partial(client.update_log_settings, {"log_verbose_level": 1}), "logs", status=status)


# The API key


@check
def a_missing_or_wrong_key(to: SimpleNamespace, way: str) -> None:
    kit, client = to.way(way)[0], to.locked(way)
    status = way_status(way, "401", "UNAUTHENTICATED")
    refused(partial(client.infer, "sums", pair(kit)[2]), "key is missing", status=status)
    wrong = {"authorization": "Bearer wrong"}
    refused(partial(client.infer, "sums", pair(kit)[2], headers=wrong), "key is wrong", status=status)
    refused(client.get_server_metadata, "key is missing", status=status)


@check
def the_right_key(to: SimpleNamespace, way: str) -> None:
    kit, client = to.way(way)[0], to.locked(way)
    a, b, given = pair(kit)
    for headers in ({"authorization": f"Bearer {KEY}"}, {"x-api-key": KEY}):
        same(client.infer("sums", given, headers=headers).as_numpy("sum"), a + b)


@check
def health_needs_no_key(to: SimpleNamespace, way: str) -> None:
    client = to.locked(way)
    assert client.is_server_live()
    assert client.is_server_ready()


@check
def a_stream_needs_the_key(to: SimpleNamespace) -> None:
    answers: queue.Queue[Any] = queue.Queue()
    client = to.grpckit.InferenceServerClient(to.locked_grpc_address)
    client.start_stream(callback=lambda result, error: answers.put(error or result))
    assert "key is missing" in str(answers.get(timeout=20))
    client.stop_stream(cancel_requests=True)


# The messages


@check
def our_messages_are_those_of_the_client(to: SimpleNamespace) -> None:
    """Every field that we describe has the number and the type that the client knows."""
    from tritonclient.grpc import model_config_pb2, service_pb2

    from dovetail_serve.grpc.messages import INFERENCE

    assert len(INFERENCE) > 40
    files = (service_pb2.DESCRIPTOR, model_config_pb2.DESCRIPTOR)
    known_messages = {name: found for file in files for name, found in file.message_types_by_name.items()}
    for name, ours in INFERENCE.items():
        head, *rest = name.split(".")
        theirs = known_messages[head]
        for each in rest:
            theirs = theirs.nested_types_by_name[each]
        for field in ours.DESCRIPTOR.fields:
            known = theirs.fields_by_name[field.name]
            assert (field.number, field.type) == (known.number, known.type), (name, field.name)
            assert field.is_repeated == known.is_repeated, (name, field.name)
    types = model_config_pb2.DataType.items()
    ours = INFERENCE["ModelInput"].DESCRIPTOR.fields_by_name["data_type"].enum_type
    assert {(each.name, each.number) for each in ours.values} == set(types)


@check
def the_standard_health_service(to: SimpleNamespace) -> None:
    import grpc

    with grpc.insecure_channel(to.locked_grpc_address) as channel:
        ask = channel.unary_unary("/grpc.health.v1.Health/Check")
        assert ask(b"") == b"\x08\x01"
        assert ask(b"\x0a\x1einference.GRPCInferenceService") == b"\x08\x01"
        watch = channel.unary_stream("/grpc.health.v1.Health/Watch")(b"")
        assert next(watch) == b"\x08\x01"
        watch.cancel()


def connect(ports: dict[str, int]) -> SimpleNamespace:
    import tritonclient.grpc as grpckit
    import tritonclient.http as httpkit

    to = SimpleNamespace(httpkit=httpkit, grpckit=grpckit)
    for name, port in ports.items():
        setattr(to, f"{name}_address", f"127.0.0.1:{port}")
    to.http = httpkit.InferenceServerClient(to.http_address, concurrency=8)
    to.grpc = grpckit.InferenceServerClient(to.grpc_address)
    to.locked_http = httpkit.InferenceServerClient(to.locked_http_address)
    to.locked_grpc = grpckit.InferenceServerClient(to.locked_grpc_address)
    to.way = lambda way: (httpkit, to.http) if way == "http" else (grpckit, to.grpc)
    to.locked = lambda way: to.locked_http if way == "http" else to.locked_grpc
    fields = {"BOOL": "bool", "BYTES": "bytes", "FP32": "fp32", "FP64": "fp64", "INT64": "int64", "UINT64": "uint64"}
    narrow = {each: "uint" if each.startswith("U") else "int" for each in DATATYPES if "INT" in each}
    to.contents = {name: f"{part}_contents" for name, part in (narrow | fields).items()}
    return to


def run(to: SimpleNamespace, name: str) -> str:
    """An empty text, or what went wrong."""
    try:
        CHECKS[name](to)
    except BaseException:  # noqa: BLE001 - whatever fails is the outcome of the check
        return traceback.format_exc()
    return ""


if __name__ == "__main__":
    server = connect(json.loads(sys.argv[1]))
    print(json.dumps({name: run(server, name) for name in CHECKS}))
