"""Kernels on disk, by a digest of everything that decides their code."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from dovetail.errors import BuildError
from dovetail.files import read_bytes, replacing
from dovetail_cuda.compile.request import CompiledCode, KernelRequest

__all__ = ["KernelStore", "default_folder", "read_record", "write_record"]

_DIGEST_BYTES: Final = 32
_MAX_RECORD_BYTES: Final = 256 << 20
"""Far more than the code of one kernel; a longer file has another digest."""

R = TypeVar("R", bound=msgspec.Struct)
Compile = Callable[[KernelRequest], CompiledCode]


def default_folder() -> Path:
    """Where kernels are kept when nobody says otherwise."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "dovetail" / "cuda"


class KernelStore:
    """Kernels that were compiled before, on this machine or on the one that the folder came from.

    Args:
        folder: Where they are.
        compile_kernel: Compiles those that are not there.
    """

    def __init__(self, folder: Path, compile_kernel: Compile) -> None:
        self._folder = folder
        self._compile = compile_kernel

    def get(self, request: KernelRequest) -> CompiledCode:
        """A kernel, compiled now where it is not there."""
        path = self._folder / f"{request.make_key()}.kernel"
        found = read_record(path, CompiledCode)
        if found is None:
            found = self._compile(request)
            write_record(path, found)
        return found

    def get_all(self, requests: Sequence[KernelRequest], workers: Executor) -> list[CompiledCode]:
        """Kernels, those that are not there compiled side by side; equal requests once.

        Raises:
            BuildError: One does not compile.
        """
        found = []
        for made in self.try_all(requests, workers):
            if isinstance(made, BuildError):
                raise made
            found.append(made)
        return found

    def try_all(self, requests: Sequence[KernelRequest], workers: Executor) -> list[CompiledCode | BuildError]:
        """The same, with an error in the place of each that does not compile."""
        futures: dict[str, Future[CompiledCode | BuildError]] = {}
        for request in requests:
            key = request.make_key()
            if key not in futures:
                futures[key] = workers.submit(self._try, request)
        try:
            return [futures[request.make_key()].result() for request in requests]
        finally:
            for future in futures.values():
                future.cancel()  # none is left but where the build was interrupted

    def _try(self, request: KernelRequest) -> CompiledCode | BuildError:
        try:
            return self.get(request)
        except BuildError as error:
            return error


def read_record(path: Path, kind: type[R]) -> R | None:
    """Return the record in a file of a store; None if there is no regular file, or it is damaged.

    Other users may write to a shared folder, so links are not followed, and a pipe or a device is not read.
    """
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        data = read_bytes(path, _MAX_RECORD_BYTES)
        digest, body = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
        if hashlib.sha256(body).digest() == digest:
            return msgspec.msgpack.decode(body, type=kind)
    return None


def write_record(path: Path, record: msgspec.Struct) -> None:
    """Write a record whole or not at all; without write access to the folder, it is compiled again next time."""
    body = msgspec.msgpack.encode(record)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with replacing(path) as stream:
            stream.write(hashlib.sha256(body).digest() + body)
