"""Traces: a span for each request in the trace of its client, over HTTP and gRPC, and nothing imported without them."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import grpc
import httpx
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from dovetail_serve.options import ServerOptions
from dovetail_serve.server import Server
from tests.serve.repositories import write_models

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"
OPTIONS = ServerOptions(http_port=0, grpc_port=0, poll_s=0, tracing=True)
BODY = {"id": "r-7", "inputs": [{"name": "rgb", "datatype": "FP32", "shape": [1, 3], "data": [1, 0, 0]}]}


@pytest.fixture(scope="module")
def spans() -> InMemorySpanExporter:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return exporter


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, spans: InMemorySpanExporter) -> Iterator[Server]:
    with Server(write_models(tmp_path_factory.mktemp("models"), "colours"), replace(OPTIONS)) as found:
        yield found


def _finished(spans: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    end = time.monotonic() + 5
    found: Sequence[ReadableSpan] = ()
    while not any(span.name == "infer" for span in found):
        assert time.monotonic() < end
        time.sleep(0.01)
        found = spans.get_finished_spans()
    return {span.name: span for span in found}


def test_a_request_over_http_belongs_to_the_trace_of_its_client(server: Server, spans: InMemorySpanExporter) -> None:
    spans.clear()
    url = f"{server.http_url}/v2/models/colours/infer"
    assert httpx.post(url, json=BODY, headers={"traceparent": PARENT}).status_code == 200
    found = _finished(spans)
    root = found["infer"]
    assert format(root.context.trace_id, "032x") == TRACE
    assert root.parent is not None
    assert root.attributes == {"dovetail.model": "colours", "dovetail.request_id": "r-7", "dovetail.version": "1"}
    for name in ("queue", "compute"):
        assert found[name].parent == root.context
    assert root.start_time <= found["queue"].start_time <= found["queue"].end_time == found["compute"].start_time
    assert found["compute"].start_time < found["compute"].end_time


def test_a_failure_is_a_span_with_its_kind(server: Server, spans: InMemorySpanExporter) -> None:
    spans.clear()
    assert httpx.post(f"{server.http_url}/v2/models/none/infer", json=BODY).status_code == 404
    root = _finished(spans)["infer"]
    assert root.parent is None
    assert root.attributes is not None
    assert root.attributes["error.type"] == "UnknownModelError"
    assert root.status.status_code is trace.StatusCode.ERROR


def test_a_request_over_grpc_belongs_to_the_trace_of_its_client(server: Server, spans: InMemorySpanExporter) -> None:
    spans.clear()
    message = b"\x0a\x07colours"  # no inputs: the request reaches the model and is refused
    with grpc.insecure_channel(server.grpc_address) as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        with pytest.raises(grpc.RpcError):
            call(message, timeout=10, metadata=[("traceparent", PARENT)])
    assert format(_finished(spans)["infer"].context.trace_id, "032x") == TRACE


def test_a_wrong_traceparent_is_no_failure(server: Server, spans: InMemorySpanExporter) -> None:
    spans.clear()
    url = f"{server.http_url}/v2/models/colours/infer"
    assert httpx.post(url, json=BODY, headers={"traceparent": "00-nonsense"}).status_code == 200
    assert _finished(spans)["infer"].parent is None


def test_nothing_of_it_is_imported_without_it(tmp_path: Path) -> None:
    code = (
        "import dovetail_serve.running, sys; print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_without_the_extra_the_message_says_how_to_get_it() -> None:
    code = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "from dovetail_serve.metrics.observed import make_observer\nfrom dovetail_serve.options import ServerOptions\n"
        "make_observer(ServerOptions(tracing=True))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "ResourceError: traces need the package 'opentelemetry'" in done.stderr
    assert "pip install 'dovetail-serve[tracing]'" in done.stderr
