"""``dovetail serve`` as a process: what it prints, how it ends, and what it refuses to start with."""

from __future__ import annotations

import atexit
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from dovetail.cli import main
from tests.serve.repositories import write_models, write_plugin

# Made once: each call of httpx.get would read all certificates of the machine first.
CLIENT = httpx.Client(timeout=30, limits=httpx.Limits(max_connections=None))
atexit.register(CLIENT.close)
FREE = ["--http-port", "0", "--grpc-port", "0", "--poll", "0"]
SLOW = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("command")
    write_models(folder / "models", "colours", "sleeper")
    broken = folder / "models" / "broken" / "1"
    broken.mkdir(parents=True)
    (broken / "model.plan").write_bytes(b"not a plan")
    write_plugin(folder)
    return folder


@contextmanager
def _serving(folder: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "dovetail", "serve", "models", "--plugins", "sleep_layer.py", *FREE, *words]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def _read_document(process: subprocess.Popen[str]) -> dict[str, object]:
    text = ""
    assert process.stdout is not None
    for line in process.stdout:
        text += line
        if line == "}\n":
            return dict(json.loads(text))
    raise AssertionError(process.stderr.read() if process.stderr else text)


def test_a_signal_ends_it_after_the_requests_that_were_accepted(folder: Path) -> None:
    with _serving(folder, "--json", "--log-format", "json", "--log-requests") as process:
        document = _read_document(process)
        states = {model["name"]: model["state"] for model in document["models"]}
        assert states == {"broken": "UNAVAILABLE", "colours": "READY", "sleeper": "READY"}
        url = document["http"]
        with ThreadPoolExecutor(6) as threads:
            waiting = [threads.submit(_infer, f"{url}/v2/models/sleeper/infer") for _ in range(6)]
            _wait_until(lambda: _waiting(url) > 1)
            process.send_signal(signal.SIGTERM)
            codes = sorted(each.result().status_code for each in waiting)
            assert set(codes) <= {200, 503}
            assert codes.count(200) > 1
        rest, log = process.communicate(timeout=30)
        assert process.returncode == 0
    assert rest == "", "the document is the whole of the standard output"
    lines = [json.loads(line) for line in log.splitlines()]
    assert sorted(line["status"] for line in lines if line["message"] == "request") == codes
    assert [line["message"] for line in lines][-1] == "stopped"
    assert "SIGTERM: draining" in [line["message"] for line in lines]


def _waiting(url: object) -> int:
    (found,) = CLIENT.get(f"{url}/v2/models/sleeper/stats").json()["model_stats"]
    return int(found["queue_size"])


def _wait_until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)


def _infer(url: str) -> httpx.Response:
    return CLIENT.post(url, json=SLOW)


def test_a_second_signal_ends_it_at_once_and_the_code_says_so(folder: Path) -> None:
    with _serving(folder, "--quiet", "--json") as process, ThreadPoolExecutor(8) as threads:
        url = str(_read_document(process)["http"])
        waiting = [threads.submit(_infer, f"{url}/v2/models/sleeper/infer") for _ in range(8)]
        _wait_until(lambda: _waiting(url) > 3)
        process.send_signal(signal.SIGINT)
        _wait_until(lambda: CLIENT.get(f"{url}/v2/health/ready").status_code != 200)
        process.send_signal(signal.SIGINT)
        _, log = process.communicate(timeout=30)
        assert process.returncode == 4
        assert "stopped before all requests were answered: a second signal came" in log
        assert any(each.exception() is not None or each.result().status_code != 200 for each in waiting)


def test_it_shows_one_screen(folder: Path) -> None:
    with _serving(folder) as process:
        assert process.stdout is not None
        shown = [process.stdout.readline() for _ in range(10)]
        assert shown[0] == "models: 2 of 3 models are ready\n"
        assert shown[1].split() == ["model", "version", "state", "reason"]
        assert shown[2].startswith("broken   1        UNAVAILABLE  ")
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=30)
    text = "".join(shown) + rest
    assert "it again, or build the plan again" in " ".join(text.split()), "a reason is never cut"
    assert "HTTP  http://127.0.0.1:" in text
    assert "gRPC  127.0.0.1:" in text


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["nowhere"], 2, "error: 'nowhere': there are no models; expected a folder with MODEL/VERSION/model.plan"),
        (["models", "--http-port", "off", "--grpc-port", "off"], 1, "error: there is nothing to listen with"),
        (["models", "--http-port", "99999"], 1, "expected 0 to 65535, or off, got '99999'"),
        (["models", "--host", "203.0.113.7"], 1, "this machine cannot listen there"),
        (["models", "--tls-key", "x"], 1, "TLS needs two files"),
        (["models", "--api-key-file", "none"], 2, "'none': the file cannot be read: No such file"),
        (["models", "--plugins", "none.py"], 2, "none.py"),
        (["models", "--max-body", "-1"], 1, "expected a number above 0"),
    ],
)
def test_what_it_cannot_start_with_is_one_message(
    folder: Path,
    words: list[str],
    code: int,
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(folder)
    assert main(["serve", *words]) == code
    shown = capsys.readouterr()
    assert message in shown.err
    assert shown.out == ""
    assert "Traceback" not in shown.err


def test_whoever_opens_it_to_others_without_a_key_is_warned(folder: Path) -> None:
    with _serving(folder, "--quiet", "--json", "--host", "0.0.0.0") as process:
        _read_document(process)
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=30)
    assert "0.0.0.0 is reachable from other machines, and whoever reaches it may run models" in log
