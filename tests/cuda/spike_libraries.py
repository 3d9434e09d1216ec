"""What the spike takes from elsewhere: a product of cuBLASLt by ctypes, and a Relu of Triton compiled ahead of time."""

from __future__ import annotations

import ctypes
import sysconfig
from ctypes import byref, c_float, c_int, c_int64, c_size_t, c_uint64, c_void_p
from pathlib import Path
from typing import Any

__all__ = ["Product", "compile_relu"]

_COMPUTE_32F, _R_32F, _MAX_WORKSPACE, _RESULT_BYTES = 68, 0, 1, 96


def _find_library() -> ctypes.CDLL:
    packages = Path(sysconfig.get_paths()["purelib"])
    found = [path for place in ("cu13", "cublas") for path in packages.glob(f"nvidia/{place}/lib/libcublasLt.so.*")]
    return ctypes.CDLL(str(found[0]) if found else "libcublasLt.so")


def _check(status: int) -> None:
    if status:
        raise RuntimeError(f"cuBLASLt gave status {status}")


class Product:
    """Row-major y = x w of float32: seen by columns it is y' = w' x'."""

    def __init__(self, rows: int, inner: int, columns: int, workspace_bytes: int) -> None:
        self._library, self._workspace_bytes = _find_library(), workspace_bytes
        self._handle, self._descriptor = c_void_p(), c_void_p()
        _check(self._library.cublasLtCreate(byref(self._handle)))
        _check(self._library.cublasLtMatmulDescCreate(byref(self._descriptor), _COMPUTE_32F, _R_32F))
        self._w, self._x, self._y = map(self._make_layout, (columns, inner, columns), (inner, rows, rows))

    def _make_layout(self, rows: int, columns: int) -> c_void_p:
        layout, sizes = c_void_p(), (c_uint64(rows), c_uint64(columns), c_int64(rows))
        _check(self._library.cublasLtMatrixLayoutCreate(byref(layout), _R_32F, *sizes))
        return layout

    def find_algorithms(self, count: int) -> list[bytes]:
        """What the heuristic proposes, best first."""
        preference, found, limit = c_void_p(), c_int(), c_size_t(self._workspace_bytes)
        _check(self._library.cublasLtMatmulPreferenceCreate(byref(preference)))
        set_attribute = self._library.cublasLtMatmulPreferenceSetAttribute
        _check(set_attribute(preference, _MAX_WORKSPACE, byref(limit), c_size_t(8)))
        results = ctypes.create_string_buffer(_RESULT_BYTES * count)
        arguments = (self._w, self._x, self._y, self._y, preference, count, results, byref(found))
        _check(self._library.cublasLtMatmulAlgoGetHeuristic(self._handle, self._descriptor, *arguments))
        return [results.raw[at * _RESULT_BYTES : at * _RESULT_BYTES + 64] for at in range(found.value)]

    def run(self, w: int, x: int, y: int, algorithm: bytes, workspace: int, stream: int) -> None:
        """Put one product on a stream."""
        one, zero = c_float(1.0), c_float(0.0)
        sources: list[Any] = [byref(one), c_void_p(w), self._w, c_void_p(x), self._x, byref(zero)]
        targets: list[Any] = [c_void_p(y), self._y, c_void_p(y), self._y]
        tail = (algorithm, c_void_p(workspace), c_size_t(self._workspace_bytes), c_void_p(stream))
        _check(self._library.cublasLtMatmul(self._handle, self._descriptor, *sources, *targets, *tail))


def compile_relu(block: int, warps: int, capability: int) -> tuple[bytes, str]:
    """The cubin, and the name of the function in it."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from tests.cuda.spike_kernel import relu

    signature = {"x": "*fp32", "y": "*fp32", "n": "i32", "BLOCK": "constexpr"}
    source = ASTSource(fn=relu, signature=signature, constexprs={(3,): block})
    options = {"num_warps": warps, "enable_fp_fusion": True}
    kernel = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    return kernel.asm["cubin"], kernel.metadata.name
