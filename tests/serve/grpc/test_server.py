"""The server over gRPC: limits, deadlines, the key, health, and what a live channel sees."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import numpy as np
import pytest

from dovetail_serve.errors import RequestError, TooLargeError
from dovetail_serve.grpc.messages import INFERENCE
from dovetail_serve.grpc.request import read_infer_request
from dovetail_serve.grpc.wire import join_field, split_field
from dovetail_serve.options import Limits, ServerOptions
from tests.serve.support import EngineService, LiveServer

LIMITS = Limits(body_bytes=1 << 20, tensor_bytes=1 << 19, tensors=4)
METHOD = "/inference.GRPCInferenceService/"


def message(rows: int = 1, model: str = "identity_FP32") -> Any:
    made = INFERENCE["ModelInferRequest"](model_name=model, raw_input_contents=[bytes(rows * 4)])
    made.inputs.add(name="x", datatype="FP32", shape=[rows, 1])
    return made


@pytest.fixture(scope="module")
def service() -> EngineService:
    return EngineService(("FP32",))


@pytest.fixture(scope="module")
def server(service: EngineService) -> Iterator[LiveServer]:
    with LiveServer(service, ServerOptions(limits=LIMITS)) as made:
        yield made


@pytest.fixture
def channel(server: LiveServer) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as made:
        yield made


def status_of(call: Any) -> tuple[str, str]:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value.code().name, caught.value.details()


def test_the_service_is_told_of_what_cannot_be_read(channel: grpc.Channel, service: EngineService) -> None:
    service.unread.clear()
    status_of(lambda: channel.unary_unary(f"{METHOD}ModelInfer")(b"\xff"))
    list(channel.stream_stream(f"{METHOD}ModelStreamInfer")(iter([b"\xff"])))
    assert list(service.unread) == [("", "", "RequestError")] * 2


def test_a_request_and_its_response(channel: grpc.Channel) -> None:
    answer = channel.unary_unary(f"{METHOD}ModelInfer")(message(3).SerializeToString())
    found = INFERENCE["ModelInferResponse"].FromString(answer)
    assert list(found.outputs[0].shape) == [3, 1]
    assert found.raw_output_contents[0] == bytes(12)


@pytest.mark.parametrize("how", [None, grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_messages_over_the_limit(channel: grpc.Channel, how: Any) -> None:
    """Also those that are small before they are decompressed."""
    data = message(1 << 20).SerializeToString()
    code, _ = status_of(lambda: channel.unary_unary(f"{METHOD}ModelInfer")(data, compression=how))
    assert code == "RESOURCE_EXHAUSTED"


def test_a_deadline_that_passes_in_the_queue(channel: grpc.Channel, service: EngineService) -> None:
    ask = channel.unary_unary(f"{METHOD}ModelInfer")
    data = message(1, "slow").SerializeToString()
    before = service.models["slow"].runs
    first = ask.future(data)
    while service.models["slow"].runs == before:
        time.sleep(0.005)
    with ThreadPoolExecutor(1) as pool:
        code, _ = pool.submit(status_of, lambda: ask(data, timeout=0.1)).result()
    first.result()
    assert code == "DEADLINE_EXCEEDED"
    ask(data)
    assert service.models["slow"].runs == before + 2


def test_methods_that_are_not_there(channel: grpc.Channel) -> None:
    assert status_of(lambda: channel.unary_unary(f"{METHOD}Nothing")(b""))[0] == "UNIMPLEMENTED"
    code, text = status_of(lambda: channel.unary_unary(f"{METHOD}TraceSetting")(b"junk"))
    assert (code, "not supported" in text) == ("UNIMPLEMENTED", True)


def test_health_follows_the_service(channel: grpc.Channel, service: EngineService) -> None:
    check = channel.unary_unary("/grpc.health.v1.Health/Check")
    watch = channel.unary_stream("/grpc.health.v1.Health/Watch")(b"")
    assert (check(b""), next(watch)) == (b"\x08\x01", b"\x08\x01")
    service.is_ready = False
    try:
        assert (check(b""), next(watch)) == (b"\x08\x02", b"\x08\x02")
        code, _ = status_of(lambda: channel.unary_unary(f"{METHOD}ModelInfer")(message().SerializeToString()))
        assert code == "UNAVAILABLE"
    finally:
        service.is_ready = True
    assert next(watch) == b"\x08\x01"
    watch.cancel()
    assert status_of(lambda: check(b"\x0a\x01x"))[0] == "NOT_FOUND"


def test_a_long_stream_that_is_cancelled_leaves_nothing(channel: grpc.Channel, server: LiveServer) -> None:
    """Also where more requests were sent than are read ahead."""
    before = len(asyncio.all_tasks(server.loop))
    data = message(1, "slow").SerializeToString()
    waiting = threading.Event()

    def requests() -> Iterator[bytes]:
        for _ in range(100):
            yield data
        waiting.wait(10)

    call = channel.stream_stream(f"{METHOD}ModelStreamInfer")(requests())
    time.sleep(0.15)
    call.cancel()
    waiting.set()
    until = time.monotonic() + 10
    while len(asyncio.all_tasks(server.loop)) > before and time.monotonic() < until:
        time.sleep(0.02)
    assert len(asyncio.all_tasks(server.loop)) <= before


def test_a_damaged_question_for_health(channel: grpc.Channel) -> None:
    watch = channel.unary_stream("/grpc.health.v1.Health/Watch")(b"\x0a\x09")
    assert status_of(lambda: next(watch))[0] == "INVALID_ARGUMENT"
    assert status_of(lambda: channel.unary_unary("/grpc.health.v1.Health/Check")(b"\x0a\x09"))[0] == "INVALID_ARGUMENT"


def test_raw_contents_are_views_of_the_message() -> None:
    data = message(64).SerializeToString()
    array = read_infer_request(data, LIMITS).inputs["x"]
    # A view cannot be where the bytes are not aligned.
    assert np.shares_memory(array, np.frombuffer(data, np.uint8)) or data.index(bytes(64)) % 4


@pytest.mark.parametrize("flood", [b"\x2a\x00", b"\x3a\x00", b"\x08\x00"])
def test_a_flood_of_fields(flood: bytes) -> None:
    with pytest.raises((TooLargeError, RequestError), match="too many"):
        read_infer_request(flood * 100_000, LIMITS)


@pytest.mark.parametrize(
    "data", [b"\x3a", b"\x3a\xff", b"\x3a\x05abc", b"\xff" * 11, b"\x0b", b"\x09\0", b"\x0a\x02\xff\xff"]
)
def test_bytes_that_are_no_message(data: bytes) -> None:
    with pytest.raises(RequestError, match="no message"):
        read_infer_request(data, LIMITS)


@pytest.mark.parametrize("rest", [b"\x20\x05", b"\x25abcd", b"\x21abcdefgh", b"\x0a\x80\x01" + bytes(128)])
def test_fields_of_every_kind_are_passed_over(rest: bytes) -> None:
    head, found = split_field(join_field(rest, 7, [b"a", bytes(300)]) + rest, 7, "x")
    assert (head, [bytes(each) for each in found]) == (rest + rest, [b"a", bytes(300)])


def test_raw_and_typed_contents_do_not_mix() -> None:
    made = message()
    made.inputs[0].contents.fp32_contents.append(1)
    with pytest.raises(RequestError, match="as well as raw"):
        read_infer_request(made.SerializeToString(), LIMITS)


def test_raw_contents_for_some_inputs_only() -> None:
    made = message()
    made.inputs.add(name="z", datatype="FP32", shape=[1])
    with pytest.raises(RequestError, match="one value for each input"):
        read_infer_request(made.SerializeToString(), LIMITS)


def test_half_precision_needs_raw_contents() -> None:
    made = INFERENCE["ModelInferRequest"](model_name="m")
    made.inputs.add(name="x", datatype="FP16", shape=[1]).contents.fp32_contents.append(1)
    with pytest.raises(RequestError, match="raw_input_contents"):
        read_infer_request(made.SerializeToString(), LIMITS)


def test_the_shorter_of_timeout_and_deadline_counts() -> None:
    made = message()
    made.parameters["timeout"].int64_param = 2_000_000
    data = made.SerializeToString()
    assert read_infer_request(data, LIMITS).timeout_us == 2_000_000
    assert read_infer_request(data, LIMITS, 1.0).timeout_us == 1_000_000
    assert read_infer_request(data, LIMITS, 3.0).timeout_us == 2_000_000


def test_its_messages_are_in_no_pool_that_is_shared() -> None:
    code = (
        "import dovetail_serve.grpc.messages\n"
        "from google.protobuf import descriptor_pool\n"
        "try:\n"
        "    descriptor_pool.Default().FindMessageTypeByName('inference.ModelInferRequest')\n"
        "except KeyError:\n"
        "    print('not shared')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "not shared"
