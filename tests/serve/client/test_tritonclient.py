"""Programs of others: an unmodified tritonclient in its own environment, over HTTP and gRPC, against a live server."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from dovetail_serve.options import Limits, ServerOptions
from tests.serve.client import checks
from tests.serve.support import EngineService, LiveServer

ROOT = Path(__file__).parents[3]
CLIENT = os.environ.get("SERVE_CLIENT", "")
SOURCES = [str(ROOT / "packages" / name / "src") for name in ("dovetail-serve", "dovetail")]

# All checks run in the setup of the first test, in one process of the client.
pytestmark = [
    pytest.mark.skipif(
        not CLIENT, reason="SERVE_CLIENT names no Python that has tritonclient; `make test-serve` makes one"
    ),
    pytest.mark.timeout(400),
]


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str]:
    service = EngineService()
    limits = Limits(body_bytes=4 << 20)
    open_to_all = ServerOptions(allow_control=True, limits=limits)
    locked = ServerOptions(api_key=checks.KEY, limits=limits)
    with LiveServer(service, open_to_all) as first, LiveServer(service, locked) as second:
        ports = {
            "http": first.http_port,
            "grpc": first.grpc_port,
            "locked_http": second.http_port,
            "locked_grpc": second.grpc_port,
        }
        command = [CLIENT, checks.__file__, json.dumps(ports)]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(SOURCES)}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=380, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("name", checks.CHECKS)
def test_check(outcomes: dict[str, str], name: str) -> None:
    assert not outcomes[name], outcomes[name]
