"""Canonical text of CUDA partitions: payloads, launches, kernels, tuning tasks and choices."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from typing import Any

import msgspec
import numpy as np

from dovetail.provider.interfaces import PackedWeight

__all__ = ["CudaRecord"]

_STORE_KEY = re.compile("[0-9a-f]{64}")


class CudaRecord:
    """Everything that the builds of a replay compile and return.

    Store keys contain the version of Triton and the bytes of the runtime library of kernels. They are replaced by
    digests of the compile request, so that another Triton does not change every line.
    """

    def __init__(self) -> None:
        self.kernels: dict[str, Any] = {}
        """Digest of a compile request -> the request."""
        self.partitions: list[Any] = []
        self._digests: dict[str, str] = {}
        """Store key -> digest of the compile request."""

    def add_kernel(self, request: Any) -> str:
        """Record a compile request and return its digest."""
        digest = hashlib.sha256(msgspec.json.encode(request)).hexdigest()[:16]
        self.kernels[digest] = request
        self._digests[request.make_key()] = digest
        return digest

    def write_kernels(self) -> dict[str, str]:
        """Return the file name and the text of each kernel: compile options as a comment, then Triton source."""
        files = {}
        for digest, request in sorted(self.kernels.items()):
            options = msgspec.to_builtins(request)
            source = options.pop("text")
            files[f"kernels/{digest}.py"] = f"# {json.dumps(options, sort_keys=True)}\n{source}"
        return files

    def describe(self, value: Any) -> Any:
        """Return a value as JSON types: bytes and arrays as digests, store keys as digests of requests."""
        match value:
            case bytes() | bytearray() | memoryview():
                return f"<{len(value)} bytes {_digest(bytes(value))}>"
            case str():
                return _STORE_KEY.sub(self._replace_key, value)
            case PackedWeight():
                return {"array": self.describe(value.array), "sources": list(value.sources), "recipe": value.recipe}
            case np.ndarray():
                return f"{value.dtype.name}{list(value.shape)} {_digest(value.tobytes())}"
            case dict():
                return {self.describe(str(name)): self.describe(item) for name, item in value.items()}
            case list() | tuple():
                return [self.describe(item) for item in value]
            case msgspec.Struct():
                return self.describe(msgspec.to_builtins(value))
            case _ if dataclasses.is_dataclass(value):
                return {field.name: self.describe(getattr(value, field.name)) for field in dataclasses.fields(value)}
            case None | bool() | int() | float():
                return value
            case _:
                return repr(value)

    def describe_partition(self, built: Any) -> dict[str, Any]:
        """Return the contents of a built or tuned partition."""
        text: dict[str, Any] = {"payload": self.describe(msgspec.msgpack.decode(built.payload))}
        for name in ("version", "weights", "aliases", "workspace_bytes", "report"):
            if hasattr(built, name):
                text[name] = self.describe(getattr(built, name))
        text["code"] = sorted(self.describe(str(name)) for name in built.code)
        text["added"] = sorted(self.describe(str(name)) for name in getattr(built, "added", ()))
        embedded = getattr(built, "candidates", None)
        if embedded is not None:
            text["candidates"] = self.describe(msgspec.msgpack.decode(embedded.payload))
            text["candidate_code"] = sorted(self.describe(str(name)) for name in embedded.code)
        return text

    def describe_tuning(self, manifest: Any) -> list[Any]:
        """Return tuning tasks, candidates and the choices: the tables that a plan stores."""
        return [
            {
                "task": self.describe(table.name),
                "profile": table.profile,
                "candidates": [f"{'*' * row.chosen} {row.name} {row.status} {row.time_us}" for row in table.candidates],
            }
            for table in manifest.tuning
        ]

    def _replace_key(self, match: re.Match[str]) -> str:
        return f"kernel:{self._digests.get(match[0], 'library ' + match[0][:16])}"


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
