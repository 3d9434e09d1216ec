"""The kernels of a partition, each compiled once however often it is launched."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from dovetail_cuda.compile.arguments import name_sizes
from dovetail_cuda.compile.request import EARLY, EARLY_CAPABILITY, CompiledCode, KernelRequest
from dovetail_cuda.compile.source import KernelText
from dovetail_cuda.lower.tensors import refuse
from dovetail_cuda.lower.types import triton_name
from dovetail_cuda.run.payload import KernelRecord

__all__ = ["KernelTable", "request_text"]


def request_text(text: KernelText, capability: int) -> KernelRequest:
    """What is compiled of a generated kernel."""
    types = [f"*{triton_name(dtype, short=True)}" for dtype in text.types]
    whole, sizes = name_sizes(text.text)
    return KernelRequest(
        function=text.name,
        text=whole,
        signature={**dict(zip(text.parameters, types, strict=True)), **sizes, EARLY: "constexpr"},
        constants={EARLY: text.starts_early and capability >= EARLY_CAPABILITY},
        num_warps=text.num_warps,
        num_stages=text.num_stages,
        capability=capability,
    )


class KernelTable:
    """Kernels by number, and their code by name.

    Args:
        compiled: Everything that is compiled, by the key of its request.
    """

    def __init__(self, compiled: Mapping[str, CompiledCode]) -> None:
        self.records: list[KernelRecord] = []
        self.code: dict[str, bytes] = {}
        self._compiled = compiled
        self._numbers: dict[str, int] = {}

    def find(self, request: KernelRequest) -> int:
        """The number of a kernel, which is in the table from then on."""
        key = request.make_key()
        if key not in self._numbers:
            compiled = self._compiled[key]
            if compiled.scratch_bytes:
                raise refuse("a kernel needs scratch memory that it does not get")
            self._numbers[key] = len(self.records)
            self.code[key] = compiled.code
            self.records.append(_describe(key, request, compiled))
        return self._numbers[key]

    def keep(self, code: bytes) -> str:
        """The name of code that a library has made, which is among the code from then on."""
        name = hashlib.sha256(code).hexdigest()
        self.code[name] = code
        return name


def _describe(key: str, request: KernelRequest, compiled: CompiledCode) -> KernelRecord:
    types = [each for each in request.signature.values() if each != "constexpr"]
    return KernelRecord(
        code=key,
        name=compiled.name,
        num_warps=compiled.num_warps,
        shared_bytes=compiled.shared_bytes,
        starts_early=compiled.starts_early,
        num_parameters=len(types),
        num_addresses=sum(each.startswith("*") for each in types),
    )
