"""A server that is started for the page of its command: what it prints, and what it answers."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

__all__ = ["show_server"]

_READY_S = 60.0
_LOOK_S = 0.1
_LOADED = "Ctrl-C ends it"
"""In the last line that the server prints before it takes requests."""
_PORTS = {r"http://127\.0\.0\.1:(\d+)": "8000", r"gRPC +127\.0\.0\.1:(\d+)": "8001"}
"""Where the address of each port is printed, and the port that is the default: the page shows that one."""
_RGB = {"name": "rgb", "datatype": "FP32", "shape": [1, 3], "data": [0.9, 0.1, 0.2]}
_REQUESTS: dict[str, Any] = {"v2/models/colours": None, "v2/models/colours/infer": {"inputs": [_RGB]}}


def show_server(line: str) -> str:
    """Blocks of a page: a server on loopback as it starts and ends, and requests with their answers."""
    words = [sys.executable, "-m", "dovetail", *shlex.split(line), "--http-port", "0", "--grpc-port", "0"]
    log = Path("server.txt")
    with log.open("w", encoding="utf-8") as stream:
        process = subprocess.Popen(words, stdout=stream, stderr=subprocess.STDOUT)  # noqa: S603 - of this site
    try:
        ports = _find_ports(_wait(process, log))
        answers = [_ask(f"http://127.0.0.1:{ports[0]}/{path}", body) for path, body in _REQUESTS.items()]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(_READY_S)
    text = "\n\n".join([_fence(f"dovetail {line}", log.read_text(encoding="utf-8")), "While it runs:", *answers])
    for port, usual in zip(ports, _PORTS.values(), strict=True):
        text = text.replace(f":{port}", f":{usual}")
    return text


def _wait(process: subprocess.Popen[bytes], log: Path) -> str:
    """What the server has printed once its models are loaded."""
    end = time.monotonic() + _READY_S
    while time.monotonic() < end and process.poll() is None:
        printed = log.read_text(encoding="utf-8")
        if _LOADED in printed:
            return printed
        time.sleep(_LOOK_S)
    raise SystemExit(f"error: the server of the page of 'dovetail serve' did not start\n{log.read_text('utf-8')}")


def _find_ports(printed: str) -> list[str]:
    found = [re.search(pattern, printed) for pattern in _PORTS]
    return [match[1] for match in found if match is not None]


def _ask(address: str, body: Any) -> str:
    """A request as a command, with the answer that came."""
    data = None if body is None else json.dumps(body)
    # An opener without proxies: those of the environment are for other hosts.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(address, data and data.encode()) as answer:
        printed = answer.read().decode()
    more = "" if data is None else f" -d \\\n  '{data}'"
    return _fence(f"curl -s {address}{more}", printed)


def _fence(line: str, printed: str) -> str:
    return f"```console\n$ {line}\n{printed.rstrip()}\n```"
