"""Ray in a network of its own: it listens on every interface, so tests run it where there is only a loopback.

``python -m tests.serve.ray.apart MODULE ...`` runs a module as a program; ``run_apart`` starts that in namespaces of
its own for network, users and processes, so that everything ends with it, whatever happens.
"""

from __future__ import annotations

import fcntl
import os
import runpy
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

__all__ = ["run_apart", "start_apart"]

ROOT = Path(__file__).parents[3]
UNSHARE = ("unshare", "--net", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc")
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1


@cache
def find_reason() -> str | None:
    """Why there can be no network of its own here; None where there can."""
    if shutil.which("unshare") is None:
        return "there is no program 'unshare'"
    done = subprocess.run([*UNSHARE, "true"], capture_output=True, text=True)
    return None if done.returncode == 0 else f"unshare fails: {done.stderr.strip()[:200]}"


@contextmanager
def start_apart(module: str, words: Sequence[object], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A module of ``tests.serve.ray`` as a program in a network of its own; it is ended with the block."""
    reason = find_reason()
    if reason is not None:
        pytest.skip(f"Ray listens on every interface, and no network of its own can be made: {reason}")
    folder = tempfile.mkdtemp(prefix="ray")  # short, because sockets lie in it
    settings = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": folder, "HOME": folder, "PYTHONPATH": str(ROOT)}
    settings["RAY_worker_register_timeout_seconds"] = "300"
    command = [*UNSHARE, sys.executable, "-m", "tests.serve.ray.apart", module, *map(str, words)]
    with log.open("wb") as stream:
        process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, **settings}, stdout=stream, stderr=stream)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def run_apart(
    module: str, words: Sequence[object], log: Path, *, timeout_s: float, until: Callable[[], bool] = lambda: False
) -> bool:
    """Run a module to its end, or kill it when ``until`` says so; whether it came to its end.

    Ray gives the parts of a node 15 to 30 seconds to start: on a machine that does much else it is tried again.
    """
    for _ in range(5):
        code = _run_once(module, words, log, timeout_s, until)
        if not code or "timed out during startup" not in log.read_text():
            break
    assert not code, log.read_text()[-5000:]
    return code is not None


def _run_once(
    module: str, words: Sequence[object], log: Path, timeout_s: float, until: Callable[[], bool]
) -> int | None:
    """The exit code; None where it was killed."""
    with start_apart(module, words, log) as process:
        end = time.monotonic() + timeout_s
        while process.poll() is None:
            if until():
                return None
            assert time.monotonic() < end, f"it takes longer than {timeout_s} s: {log.read_text()[-3000:]}"
            time.sleep(0.05)
        return process.returncode


def raise_loopback() -> None:
    """Bring the loopback of a new network up; not every machine has iproute."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(probe, SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(probe, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | IFF_UP))


def require_apart() -> None:
    """Make sure that nothing but the loopback is there."""
    names = [name for _, name in socket.if_nameindex()]
    assert names == ["lo"], f"this network has {names}: start it with run_apart"


if __name__ == "__main__":
    require_apart()
    raise_loopback()
    sys.argv = sys.argv[1:]
    runpy.run_module(f"tests.serve.ray.{sys.argv[0]}", run_name="__main__", alter_sys=True)
