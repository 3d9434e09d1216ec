"""Kernels in Triton's interpreter, over memory of the host and without PyTorch.

What stands for a cubin is the request it would be compiled from. The module must be imported before Triton is, which
decides to interpret when it is imported.
"""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"

import threading
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec
import numpy as np

from dovetail.errors import ProviderError
from dovetail_cuda.compile.request import EARLY, CompiledCode, KernelRequest
from dovetail_cuda.compile.triton_compiler import load_kernel

_FUNCTIONS = {
    **{name: getattr(np, f"arc{name[1:]}") for name in ("acos", "acosh", "asin", "asinh", "atan", "atanh")},
    **{name: getattr(np, name) for name in ("cosh", "expm1", "fmod", "log1p", "rint", "sinh", "tan", "tanh")},
    "pow": np.power,
}
_lock = threading.Lock()  # the interpreter changes Triton's language while it runs


@dataclass(frozen=True)
class FakeCode:
    request: KernelRequest


def compile_fake(request: KernelRequest) -> CompiledCode:
    """What stands for compiling."""
    return CompiledCode(
        code=msgspec.msgpack.encode(request),
        name=request.function,
        num_warps=request.num_warps,
        shared_bytes=0,
        starts_early=request.starts_early,
    )


def read_code(code: bytes) -> FakeCode:
    try:
        return FakeCode(msgspec.msgpack.decode(code, type=KernelRequest))
    except msgspec.MsgspecError:
        raise ProviderError("the device does not take the code of a kernel", where="CUDA driver") from None


class Pointer:
    """An address as the interpreter takes tensors."""

    def __init__(self, address: int, dtype: str) -> None:
        self._address, self.dtype = address, dtype

    def data_ptr(self) -> int:
        return self._address

    def untyped_storage(self) -> Pointer:
        return self

    def cpu(self) -> Pointer:
        return self

    def new_empty(self, size: int, device: str) -> Pointer:
        return Pointer(0, self.dtype)

    def set_(self, storage: Pointer, *layout: Any) -> None:
        self._address = storage.data_ptr()

    def storage_offset(self) -> int:
        return 0

    def size(self) -> tuple[int, ...]:
        return ()

    def stride(self) -> tuple[int, ...]:
        return ()

    def copy_(self, other: Pointer) -> None:
        return


@cache
def _patch() -> None:
    """Have the interpreter know the functions of CUDA's library for mathematics."""
    from dovetail_cuda.kernels import functions

    for name, function in _FUNCTIONS.items():
        setattr(functions, {"rint": "round"}.get(name, name), _make_function(function))


def _make_function(function: Any) -> Any:
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    def call(*tensors: Any) -> Any:
        first = tensors[0].handle
        data = function(*(tensor.handle.data for tensor in tensors)).astype(first.data.dtype)
        return tl.tensor(TensorHandle(data, first.dtype), tl.block_type(first.dtype.scalar, list(data.shape)))

    return call


def run_kernel(code: FakeCode, addresses: Sequence[int], grid: tuple[int, int, int]) -> None:
    """Run a kernel over addresses."""
    _patch()
    request, left = code.request, list(addresses)
    constants = {**request.constants, EARLY: False}  # it has no kernels that overlap
    arguments = [
        constants[name]
        if kind == "constexpr"
        else Pointer(left.pop(0), _TYPES[kind])
        if kind[0] == "*"
        else left.pop(0)
        for name, kind in request.signature.items()
    ]
    with _lock, warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        load_kernel(request)[grid](*arguments)


_TYPES = {
    **{f"*i{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"*u{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
    "*fp16": "float16",
    "*bf16": "bfloat16",
    "*fp32": "float32",
    "*fp64": "float64",
    "*i1": "bool",
}
