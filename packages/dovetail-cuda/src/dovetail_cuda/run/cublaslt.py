"""cuBLASLt by ctypes: products with a bias, a residual and an activation, by an algorithm that was chosen before.

The library thinks in columns. A matrix that lies row by row is its own transpose there, so the product that is asked of
it has the right operand first.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from ctypes import byref, c_double, c_float, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any, Final

from dovetail.errors import ProviderError
from dovetail_cuda.run.payload import WORKSPACE_BYTES, Product

__all__ = ["NUM_ALGORITHMS", "CublasLt", "ProductLibrary", "RunProduct", "load_cublaslt"]

NUM_ALGORITHMS: Final = 4
"""How many algorithms of the library are tried for a product."""

_TYPES: Final = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 14}
_COMPUTE_32F, _COMPUTE_TF32, _COMPUTE_64F = 68, 77, 70
_TRANSA, _TRANSB, _EPILOGUE, _BIAS_POINTER = 3, 4, 7, 8
_BATCH_COUNT, _BATCH_STRIDE = 5, 6
_MAX_WORKSPACE, _RESULT_BYTES, _ALGORITHM_BYTES = 1, 96, 64
_EPILOGUES: Final = {
    ("", False): 1,
    ("relu", False): 2,
    ("", True): 4,
    ("relu", True): 6,
    ("gelu_tanh", False): 32,
    ("gelu_tanh", True): 36,
}
RunProduct = Callable[[list[int], int, int], None]
"""Puts a product on a stream: the addresses of its buffers, that of the scratch memory, and the stream."""


class ProductLibrary:
    """What multiplies matrices: cuBLASLt, or what stands for it in tests."""

    def get_version(self) -> int:
        """The version that algorithms are of."""
        raise NotImplementedError

    def find_algorithms(self, product: Product, count: int) -> list[bytes]:
        """Algorithms for a product, the most promising first."""
        raise NotImplementedError

    def prepare(self, product: Product, algorithm: bytes) -> RunProduct:
        """Make a product ready to run."""
        raise NotImplementedError

    def close(self) -> None:
        """Give its handle back; nothing that it prepared is run any more."""


def _list_places() -> list[str]:
    """Where the library may be: beside the wheels of NVIDIA, else where the system finds it."""
    found = [
        str(path)
        for entry in sys.path
        for part in ("cu13", "cublas", "cu12")
        for path in sorted(Path(entry or ".").glob(f"nvidia/{part}/lib/libcublasLt.so.*"))
    ]
    return [*found, "libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"]


@cache
def load_cublaslt() -> ctypes.CDLL:
    """The library itself.

    Raises:
        ProviderError: It is not here.
    """
    for place in _list_places():
        handle = _open(place)
        if handle:
            return ctypes.CDLL(place, handle=handle)
    raise ProviderError("cuBLASLt is not here", where="provider 'cuda'", fix="pip install nvidia-cublas")


def _open(place: str) -> int | None:
    """The handle of a library; other threads run meanwhile, which they do not while ``ctypes.CDLL`` opens one."""
    opener = ctypes.CDLL(None).dlopen
    opener.argtypes, opener.restype = (ctypes.c_char_p, c_int), c_void_p
    handle: int | None = opener(os.fsencode(place), os.RTLD_NOW | os.RTLD_LOCAL)
    return handle


def _check(status: int, what: str) -> None:
    if status:
        raise ProviderError(f"{what}: status {status}", where="cuBLASLt")


class CublasLt(ProductLibrary):
    """The library, opened when it is first asked for something; the context must be current."""

    def __init__(self) -> None:
        self._library = load_cublaslt()
        self._handle = c_void_p()
        _check(self._library.cublasLtCreate(byref(self._handle)), "the library does not start")
        self._library.cublasLtGetVersion.restype = c_size_t

    def get_version(self) -> int:
        """The version that algorithms are of."""
        return int(self._library.cublasLtGetVersion())

    def find_algorithms(self, product: Product, count: int) -> list[bytes]:
        """What the library's own heuristic proposes, best first."""
        described = _Described(self._library, product)
        preference, found, limit = c_void_p(), c_int(), c_size_t(WORKSPACE_BYTES)
        _check(self._library.cublasLtMatmulPreferenceCreate(byref(preference)), "no preference")
        set_attribute = self._library.cublasLtMatmulPreferenceSetAttribute
        _check(set_attribute(preference, _MAX_WORKSPACE, byref(limit), c_size_t(8)), "no preference")
        results = ctypes.create_string_buffer(_RESULT_BYTES * count)
        layouts = (described.first, described.second, described.result, described.result)
        tail = (preference, count, results, byref(found))
        status = self._library.cublasLtMatmulAlgoGetHeuristic(self._handle, described.operation, *layouts, *tail)
        self._library.cublasLtMatmulPreferenceDestroy(preference)
        if status:
            return []
        return [results.raw[at * _RESULT_BYTES :][:_ALGORITHM_BYTES] for at in range(found.value)]

    def prepare(self, product: Product, algorithm: bytes) -> RunProduct:
        """Make a product ready to run; the algorithm is checked against the product by the library itself."""
        described = _Described(self._library, product)
        checked = ctypes.create_string_buffer(_RESULT_BYTES)
        layouts = (described.first, described.second, described.result, described.result)
        check = self._library.cublasLtMatmulAlgoCheck
        _check(check(self._handle, described.operation, *layouts, algorithm, checked), "the algorithm does not fit")
        return _Prepared(self._library, self._handle, described, algorithm).run

    def close(self) -> None:
        """Give the handle back."""
        handle, self._handle = self._handle, c_void_p()
        if handle.value:
            _check(self._library.cublasLtDestroy(handle), "the library does not end")


class _Described:
    """A product as the library has it described."""

    def __init__(self, library: ctypes.CDLL, product: Product) -> None:
        self._library, self.product = library, product
        is_double = product.dtype == "float64"
        compute = _COMPUTE_64F if is_double else _COMPUTE_TF32 if product.allows_tf32 else _COMPUTE_32F
        self.operation = c_void_p()
        status = library.cublasLtMatmulDescCreate(
            byref(self.operation), compute, _TYPES["float64" if is_double else "float32"]
        )
        _check(status, "no description of a product")
        self._set(_TRANSA, c_int32(int(product.is_right_swapped)))
        self._set(_TRANSB, c_int32(int(product.is_left_swapped)))
        self._set(_EPILOGUE, c_uint32(_EPILOGUES[product.activation, product.has_bias]))
        right = (product.k, product.n) if product.is_right_swapped else (product.n, product.k)
        left = (product.m, product.k) if product.is_left_swapped else (product.k, product.m)
        self.first = self._make_layout(*right, product.right_line, product.right_stride)
        self.second = self._make_layout(*left, product.left_line, product.left_stride)
        self.result = self._make_layout(product.n, product.m, product.result_line, product.result_stride)

    def set_bias(self, address: int) -> None:
        self._set(_BIAS_POINTER, c_uint64(address))

    def _set(self, attribute: int, value: Any) -> None:
        set_attribute = self._library.cublasLtMatmulDescSetAttribute
        size = c_size_t(ctypes.sizeof(value))
        _check(set_attribute(self.operation, attribute, byref(value), size), "no such product")

    def _make_layout(self, rows: int, columns: int, line: int, stride: int) -> c_void_p:
        layout, kind = c_void_p(), _TYPES[self.product.dtype]
        create = self._library.cublasLtMatrixLayoutCreate
        _check(create(byref(layout), kind, c_uint64(rows), c_uint64(columns), c_int64(line)), "no such matrix")
        if self.product.batch > 1:
            for attribute, value in ((_BATCH_COUNT, c_int32(self.product.batch)), (_BATCH_STRIDE, c_int64(stride))):
                size = c_size_t(ctypes.sizeof(value))
                set_attribute = self._library.cublasLtMatrixLayoutSetAttribute
                _check(set_attribute(layout, attribute, byref(value), size), "no such batch")
        return layout

    def __del__(self) -> None:
        for layout in (self.first, self.second, self.result):
            self._library.cublasLtMatrixLayoutDestroy(layout)
        self._library.cublasLtMatmulDescDestroy(self.operation)


class _Prepared:
    """A product with everything that does not change between runs."""

    def __init__(self, library: ctypes.CDLL, handle: c_void_p, described: _Described, algorithm: bytes) -> None:
        self._matmul, self._handle, self._described = library.cublasLtMatmul, handle, described
        number = c_double if described.product.dtype == "float64" else c_float
        self._alpha, self._beta = number(described.product.alpha), number(float(described.product.has_residual))
        self._algorithm = algorithm
        self._has_bias, self._has_residual = described.product.has_bias, described.product.has_residual

    def run(self, addresses: list[int], workspace: int, stream: int) -> None:
        """Put it on a stream."""
        described, (left, right), result = self._described, addresses[:2], addresses[-1]
        residual = addresses[-2] if self._has_residual else result
        if self._has_bias:
            described.set_bias(addresses[2])
        status = self._matmul(
            *(self._handle, described.operation, byref(self._alpha)),
            *(c_void_p(right), described.first, c_void_p(left), described.second, byref(self._beta)),
            *(c_void_p(residual), described.result, c_void_p(result), described.result),
            *(self._algorithm, c_void_p(workspace), c_size_t(WORKSPACE_BYTES), c_void_p(stream)),
        )
        _check(status, "a product failed")
