"""Choosing how a product is computed: candidates in the order they are worth trying, timed by the core's tuner."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from dovetail.provider.interfaces import BuildContext, Candidate
from dovetail_cuda.compile.request import CompiledCode, KernelRequest
from dovetail_cuda.compile.store import KernelStore
from dovetail_cuda.lower.products import GemmTile, list_tiles, make_request
from dovetail_cuda.lower.tensors import refuse
from dovetail_cuda.run.cublaslt import ProductLibrary
from dovetail_cuda.run.payload import Product, list_counts
from dovetail_cuda.run.trial import ProductTrial

__all__ = ["ChosenProduct", "LibraryProduct", "ProductChooser", "TileProduct"]

_NUM_ALGORITHMS: Final = 4
_REFERENCE_OPS: Final = 1 << 31
"""Products up to so many multiplications are compared with NumPy's; larger ones with each other."""


@dataclass(frozen=True, kw_only=True)
class LibraryProduct:
    """By an algorithm of cuBLASLt."""

    algorithm: bytes
    version: int


@dataclass(frozen=True, kw_only=True)
class TileProduct:
    """By the kernel of ours."""

    request: KernelRequest
    compiled: CompiledCode
    grid: tuple[int, int, int]


Way = LibraryProduct | TileProduct


@dataclass(frozen=True, kw_only=True)
class ChosenProduct:
    """What was chosen for a product."""

    name: str
    way: Way
    time_us: float | None


class ProductChooser:
    """Chooses for the products of one partition."""

    def __init__(
        self,
        context: BuildContext,
        *,
        store: KernelStore,
        library: ProductLibrary,
        capability: int,
        make_trial: Callable[[Product, Any], ProductTrial],
    ) -> None:
        self._context = context
        self._store = store
        self._library = library
        self._capability = capability
        self._make_trial = make_trial

    def prepare(self, products: Sequence[Product]) -> None:
        """Compile the tiles of all products side by side; each is taken from the store when it is its turn."""
        requests = [self._request(product, tile)[0] for product in products for tile in list_tiles(product)]
        self._store.get_all(requests, self._context.workers)

    def choose(self, product: Product) -> ChosenProduct:
        """The fastest right way for a product."""
        ways = self._list_ways(product)
        if not ways:
            raise refuse(f"nothing multiplies {product.dtype} of these shapes")
        inputs = _make_inputs(product)
        trial = self._make_trial(product, inputs)
        try:
            candidates = [self._make_candidate(trial, name, way) for name, way in ways.items()]
            found = self._context.tuner.choose(_question(product), candidates, reference=_reference(product, inputs))
        finally:
            trial.close()
        return ChosenProduct(name=found.name, way=ways[found.name], time_us=found.time_us)

    def _request(self, product: Product, tile: GemmTile) -> tuple[KernelRequest, tuple[int, int, int]]:
        return make_request(product, tile, self._capability)

    def _list_ways(self, product: Product) -> dict[str, Way]:
        ways: dict[str, Way] = {}
        version = self._library.get_version()
        for number, algorithm in enumerate(self._library.find_algorithms(product, _NUM_ALGORITHMS)):
            ways[f"cuBLASLt {number}"] = LibraryProduct(algorithm=algorithm, version=version)
        for tile in list_tiles(product):
            request, grid = self._request(product, tile)
            ways[tile.name] = TileProduct(request=request, compiled=self._store.get(request), grid=grid)
        return ways

    def _make_candidate(self, trial: ProductTrial, name: str, way: Way) -> Candidate:
        def start() -> Callable[[], None]:
            stream = self._context.tuner.stream
            if stream is None:
                raise refuse("products are timed on a stream")
            if isinstance(way, LibraryProduct):
                return trial.start_library(way.algorithm, stream)
            return trial.start_kernel(way.compiled.code, way.compiled.name, way.grid, _warps(way), stream)

        tolerance = 1e-3 if trial.product.allows_tf32 else 0.0
        return Candidate(name=name, start=start, results=partial(_collect, trial, start), tolerance=tolerance)


def _warps(way: TileProduct) -> tuple[int, int]:
    return way.compiled.num_warps, way.compiled.shared_bytes


def _collect(trial: ProductTrial, start: Callable[[], Callable[[], None]]) -> Sequence[Any]:
    """Run once and read the result."""
    trial.spoil_result()
    start()()
    return [trial.read_result()]


def _question(product: Product) -> str:
    """Everything that decides the time of a product."""
    sides = "".join("t" if swapped else "n" for swapped in (product.is_left_swapped, product.is_right_swapped))
    strides = f" strides {product.left_stride},{product.right_stride}" if product.batch > 1 else ""
    strides += f" lines {product.left_line},{product.right_line}"
    extras = [f"alpha {product.alpha}"] if product.alpha != 1.0 else []
    extras += [name for name in ("bias" if product.has_bias else "", product.activation) if name]
    extras += ["tf32"] if product.allows_tf32 else []
    shape = f"{product.batch}x{product.m}x{product.n}x{product.k}"
    return " ".join((f"product {shape} {sides} {product.dtype}{strides}", *extras))


def _make_inputs(product: Product) -> list[Any]:
    """Operands of no particular numbers, the same in every build: everything from first to last element."""
    import ml_dtypes  # noqa: F401 - has NumPy know the names of its types

    rng, dtype = np.random.default_rng(13), np.dtype(product.dtype)
    *counts, _ = list_counts(product)
    return [rng.standard_normal(count, np.float32).astype(dtype) for count in counts]


def _view(flat: Any, rows: int, columns: int, stride: int, line: int, is_swapped: bool, batch: int) -> Any:
    """The matrices that lie in an operand."""
    steps = [stride, 1, line] if is_swapped else [stride, line, 1]
    strides = [step * flat.itemsize for step in steps]
    return np.lib.stride_tricks.as_strided(flat, (batch, rows, columns), strides, writeable=False)


def _reference(product: Product, inputs: Sequence[Any]) -> list[Any] | None:
    """The product by NumPy, where that does not take long."""
    if product.batch * product.m * product.n * product.k > _REFERENCE_OPS:
        return None
    wide = np.float64 if product.dtype == "float64" else np.float32
    p, (first, second, *bias) = product, [array.astype(wide) for array in inputs]
    left = _view(first, p.m, p.k, p.left_stride, p.left_line, p.is_left_swapped, p.batch)
    right = _view(second, p.k, p.n, p.right_stride, p.right_line, p.is_right_swapped, p.batch)
    result = np.matmul(left, right) * wide(product.alpha)
    result = result + bias[0] if bias else result
    if product.activation == "relu":
        result = np.maximum(result, 0)
    elif product.activation == "gelu_tanh":
        inner = 0.7978845608028654 * (result + 0.044715 * result**3)
        result = 0.5 * result * (1 + np.tanh(inner))
    return [result.astype(np.dtype(product.dtype))]
