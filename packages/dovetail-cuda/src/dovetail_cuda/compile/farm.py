"""Processes that compile kernels, each used by one thread at a time; Triton holds Python's lock for long stretches."""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import sys
import threading
from functools import cache

import msgspec

from dovetail.errors import BuildError, ProviderError
from dovetail_cuda.compile.request import CompiledCode, KernelRequest, find_triton_version
from dovetail_cuda.compile.worker import Answer, CompileFailure, read_message, write_message

__all__ = ["CompileFarm", "get_farm"]


class CompileFarm:
    """Compiles in as many processes as there are threads that ask at once; they stay for the next one."""

    def __init__(self) -> None:
        self._idle: list[subprocess.Popen[bytes]] = []
        self._all: list[subprocess.Popen[bytes]] = []
        self._lock = threading.Lock()

    def compile(self, request: KernelRequest) -> CompiledCode:
        """Compile a kernel.

        Raises:
            BuildError: Triton does not take it.
            ProviderError: Triton is not installed, or its process ended.
        """
        if not find_triton_version():
            fix = "pip install 'dovetail-cuda[build]'"
            raise ProviderError("Triton is not installed, which compiles kernels", where="provider 'cuda'", fix=fix)
        process = self._take()
        answer = self._ask(process, request)
        if isinstance(answer, CompileFailure):
            raise BuildError(f"a kernel does not compile: {answer.reason[:2000]}", where="provider 'cuda'")
        return answer.code

    def close(self) -> None:
        """End all processes."""
        with self._lock:
            processes, self._all, self._idle = self._all, [], []
        for process in processes:
            _end(process)

    def _take(self) -> subprocess.Popen[bytes]:
        while (idle := self._take_idle()) is not None:
            if idle.poll() is None:
                return idle
            self._drop(idle)
        process = subprocess.Popen(
            [sys.executable, "-m", "dovetail_cuda.compile.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=_make_environment(),
            start_new_session=True,  # an interrupt at the terminal is for the build, which then may be tried again
        )
        with self._lock:
            self._all.append(process)
        return process

    def _take_idle(self) -> subprocess.Popen[bytes] | None:
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _ask(self, process: subprocess.Popen[bytes], request: KernelRequest) -> Answer:
        stdin, stdout = process.stdin, process.stdout
        if stdin is None or stdout is None:
            raise ProviderError("a process that compiles has no pipes", where="provider 'cuda'")
        message = None
        try:
            with contextlib.suppress(OSError):  # a process that ended gives no answer
                write_message(stdin, msgspec.msgpack.encode(request))
                message = read_message(stdout)
        finally:
            if not message:
                self._drop(process)
        if not message:
            raise ProviderError("the process that compiles kernels ended", where="provider 'cuda'")
        with self._lock:
            self._idle.append(process)
        answer: Answer = msgspec.msgpack.decode(message, type=Answer)
        return answer

    def _drop(self, process: subprocess.Popen[bytes]) -> None:
        """Forget a process that ended, or is in the middle of something."""
        with self._lock:
            if process in self._all:
                self._all.remove(process)
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):  # what was not sent is lost with the process
                pipe.close()


def _make_environment() -> dict[str, str]:
    """The path of this process, and nothing that would have Triton interpret instead of compile."""
    kept = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    return {**kept, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


@cache
def get_farm() -> CompileFarm:
    """The farm of this process, which ends with it."""
    farm = CompileFarm()
    atexit.register(farm.close)
    return farm
