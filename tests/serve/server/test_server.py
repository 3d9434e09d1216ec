"""A server in this process: ports, pages, draining, and nothing that is left behind."""

from __future__ import annotations

import atexit
import socket
import ssl
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import grpc
import httpx
import pytest

from dovetail.errors import InputError, ResourceError, UsageError
from dovetail_serve.options import ServerOptions
from dovetail_serve.server import Server
from tests.serve.certificates import make_certificates
from tests.serve.repositories import write_models

# Made once: each call of httpx.get would read all certificates of the machine first.
CLIENT = httpx.Client(timeout=30, limits=httpx.Limits(max_connections=None))
atexit.register(CLIENT.close)
FREE = ServerOptions(http_port=0, grpc_port=0, poll_s=0)
RED = {"inputs": [{"name": "rgb", "datatype": "FP32", "shape": [1, 3], "data": [1, 0, 0]}]}
SLOW = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}]}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_models(tmp_path_factory.mktemp("models"), "colours")


@pytest.fixture(scope="module")
def slow_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_models(tmp_path_factory.mktemp("slow"), "colours", "sleeper")


def _infer(url: str, model: str, body: object) -> httpx.Response:
    return CLIENT.post(f"{url}/v2/models/{model}/infer", json=body)


def test_a_model_is_served_at_ports_that_were_free(models: Path) -> None:
    with Server(models, FREE) as server:
        assert server.http_url == f"http://127.0.0.1:{server.http_port}"
        assert server.http_port != server.grpc_port
        answer = _infer(server.http_url, "colours", RED).json()
        assert max(range(8), key=answer["outputs"][0]["data"].__getitem__) == 1
        with grpc.insecure_channel(server.grpc_address) as channel:
            live = channel.unary_unary("/inference.GRPCInferenceService/ServerLive")(b"", timeout=10)
        assert live == b"\x08\x01"
        assert [(entry.name, entry.state) for entry in server.index()] == [("colours", "READY")]
        url = str(server.http_url)
    assert server.http_url is None
    with pytest.raises(httpx.ConnectError):
        CLIENT.get(url)


def test_pages_lie_beside_the_protocol(models: Path) -> None:
    with Server(models, replace(FREE, grpc_port=None)) as server:
        assert server.grpc_address is None
        page = CLIENT.get(f"{server.http_url}/")
        assert page.headers["content-type"].startswith("text/html")
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert CLIENT.post(f"{server.http_url}/").status_code == 405
        assert 'dovetail_model_ready{model="colours",version="1"} 1.0' in CLIENT.get(f"{server.http_url}/metrics").text
        assert CLIENT.delete(f"{server.http_url}/metrics").status_code == 405


def test_the_key_is_wanted_for_all_but_the_page_and_health(models: Path) -> None:
    key = "0123456789abcdef"
    with Server(models, replace(FREE, api_key=key)) as server:
        codes = {
            path: CLIENT.get(f"{server.http_url}{path}").status_code
            for path in ("/", "/metrics", "/v2", "/v2/health/live")
        }
        assert codes == {"/": 200, "/metrics": 401, "/v2": 401, "/v2/health/live": 200}
        headers = {"Authorization": f"Bearer {key}"}
        assert CLIENT.get(f"{server.http_url}/metrics", headers=headers).status_code == 200


def test_both_ports_speak_tls(models: Path, tmp_path: Path) -> None:
    folder = make_certificates(tmp_path)
    options = replace(FREE, tls_certificate=folder / "a.pem", tls_key=folder / "a.key")
    with Server(models, options) as server:
        url = str(server.http_url)
        assert url.startswith("https://")
        trusted = ssl.create_default_context(cafile=str(folder / "a.pem"))
        assert httpx.get(f"{url}/v2/health/ready", verify=trusted).status_code == 200
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{url}/v2/health/ready", verify=ssl.create_default_context(cafile=str(folder / "b.pem")))
        credentials = grpc.ssl_channel_credentials((folder / "a.pem").read_bytes())
        with grpc.secure_channel(server.grpc_address, credentials) as channel:
            ready = channel.unary_unary("/inference.GRPCInferenceService/ServerReady")(b"", timeout=10)
        assert ready == b"\x08\x01"


@pytest.mark.parametrize("origin", ["https://example.org", "null", "http://127.0.0.1"])
def test_pages_of_other_sites_are_refused(models: Path, origin: str) -> None:
    with Server(models, replace(FREE, grpc_port=None)) as server:
        for method in ("GET", "POST"):
            answer = CLIENT.request(method, f"{server.http_url}/v2/repository/index", headers={"Origin": origin})
            assert answer.status_code == 403
            assert "pages of other sites" in answer.json()["error"]
        own = CLIENT.post(f"{server.http_url}/v2/repository/index", headers={"Origin": str(server.http_url)})
        assert own.status_code == 200


def test_accepted_requests_are_answered_while_it_drains(slow_models: Path) -> None:
    with ThreadPoolExecutor(8) as threads, Server(slow_models, FREE) as server:
        url = str(server.http_url)
        waiting = [threads.submit(_infer, url, "sleeper", SLOW) for _ in range(6)]
        _wait_until(lambda: _waiting(url, "sleeper") > 0)
        stopping = threads.submit(server.stop)
        _wait_until(lambda: CLIENT.get(f"{url}/v2/health/ready").status_code != 200)
        refused = _infer(url, "colours", RED)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert stopping.result(30) is True
        # One that came after the signal was refused, and told so; none was left without an answer.
        codes = [each.result(30).status_code for each in waiting]
        assert set(codes) <= {200, 503}
        assert codes.count(200) > 1


def test_what_takes_longer_than_the_drain_is_given_up_and_said(
    slow_models: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with ThreadPoolExecutor(8) as threads, Server(slow_models, replace(FREE, drain_s=0.05)) as server:
        waiting = [threads.submit(_infer, str(server.http_url), "sleeper", SLOW) for _ in range(6)]
        _wait_until(lambda: _waiting(str(server.http_url), "sleeper") > 1)
        start = time.monotonic()
        assert server.stop() is False
        assert "stopped before all requests were answered: 0.05 s have passed" in caplog.text
        assert time.monotonic() - start < 10
        assert any(each.exception(30) is not None or each.result().status_code != 200 for each in waiting)


def test_a_second_wish_to_stop_is_heeded_at_once(slow_models: Path, caplog: pytest.LogCaptureFixture) -> None:
    with ThreadPoolExecutor(8) as threads, Server(slow_models, FREE) as server:
        for _ in range(6):
            threads.submit(_infer, str(server.http_url), "sleeper", SLOW)
        _wait_until(lambda: _waiting(str(server.http_url), "sleeper") > 1)
        server.stop_now()
        assert server.stop() is False
        assert "a second signal came" in caplog.text


def test_a_stopped_server_leaves_no_thread_and_no_port(models: Path) -> None:
    before = set(threading.enumerate())
    with Server(models, FREE) as server:
        ports = [server.http_port, server.grpc_port]
    assert server.stop() is True
    _wait_until(lambda: not [thread for thread in set(threading.enumerate()) - before if not thread.daemon])
    for port in ports:
        with socket.create_server(("127.0.0.1", port)):
            pass
    with pytest.raises(UsageError, match="started already"):
        server.start()
    with pytest.raises(UsageError, match="does not run"):
        server.index()


@pytest.mark.parametrize("name", ["http_port", "grpc_port"])
def test_a_port_that_is_taken_ends_the_start(models: Path, name: str, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = Server(models, replace(FREE, **{name: taken.getsockname()[1]}))
        with pytest.raises(ResourceError, match="the port is taken"):
            server.start()
    assert server.http_port is None
    assert caplog.text == "", "the error is all that is told"


@pytest.mark.parametrize("make", [lambda path: None, lambda path: path.mkdir(), lambda path: path.write_text("x")])
def test_a_folder_without_models(tmp_path: Path, make: Callable[[Path], object]) -> None:
    make(tmp_path / "models")
    with pytest.raises(InputError, match="there are no models; expected a folder with MODEL/VERSION/model"):
        Server(tmp_path / "models")


def test_a_model_is_no_folder_of_models(models: Path) -> None:
    model = next(path for path in models.iterdir() if path.is_dir())
    with pytest.raises(InputError, match=r"this is one model(.|\n)*serve the folder that it is in"):
        Server(model)


def test_a_slow_client_does_not_keep_its_connection(models: Path) -> None:
    limits = replace(FREE.limits, idle_s=0.3)
    with (
        Server(models, replace(FREE, limits=limits)) as server,
        socket.create_connection(("127.0.0.1", server.http_port), timeout=10) as slow,
    ):
        slow.sendall(b"GET /v2 HTTP/1.1\r\nHost: a\r\n")
        start = time.monotonic()
        assert slow.recv(1000) == b""
        assert time.monotonic() - start < 5


def _waiting(url: str, model: str) -> int:
    (found,) = CLIENT.get(f"{url}/v2/models/{model}/stats").json()["model_stats"]
    return int(found["queue_size"])


def _wait_until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)
