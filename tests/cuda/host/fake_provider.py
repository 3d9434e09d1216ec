"""The provider over a driver and a library of the host."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ml_dtypes  # noqa: F401
import numpy as np

from dovetail.provider.loader import get_provider, register_provider, unregister_provider
from dovetail_cuda.provider import CudaFactory, CudaProvider, Toolbox
from dovetail_cuda.run.cublaslt import ProductLibrary, RunProduct
from dovetail_cuda.run.cudnn import ConvLibrary
from dovetail_cuda.run.gpu import Gpu
from dovetail_cuda.run.payload import Product, list_counts
from tests.cuda.host.fake_cudnn import FakeConvolutions
from tests.cuda.host.fake_driver import FakeDriver
from tests.cuda.host.interpreter import compile_fake


class FakeProducts(ProductLibrary):
    """Products by NumPy, put on streams of the fake driver."""

    def __init__(self, driver: FakeDriver) -> None:
        self.driver = driver
        self.version = 130100
        self.is_closed = False

    def get_version(self) -> int:
        return self.version

    def find_algorithms(self, product: Product, count: int) -> list[bytes]:
        return [bytes([number]) * 64 for number in range(min(count, 2))]

    def prepare(self, product: Product, algorithm: bytes) -> RunProduct:
        assert not self.is_closed, "the handle of a stream that is gone"

        def run(addresses: list[int], workspace: int, stream: int) -> None:
            assert not self.is_closed, "the handle of a stream that is gone"
            given = list(addresses)
            self.driver._submit(stream, "product", lambda: self._multiply(product, given))

        return run

    def close(self) -> None:
        self.is_closed = True

    def _multiply(self, product: Product, addresses: list[int]) -> None:
        self.driver.launched.append("product")
        left, right, *extra, result = (
            self.driver.view(address, (count,), np.dtype(product.dtype))
            for address, count in zip(addresses, list_counts(product), strict=True)
        )
        a, b = _matrices(left, product, "left"), _matrices(right, product, "right")
        made = np.matmul(a, b) * product.alpha
        if product.has_bias:
            made = made + extra.pop(0).astype(made.dtype)
        if product.has_residual:
            made = made + _lay(extra.pop(0), product).astype(made.dtype)
        if product.activation == "relu":
            made = np.maximum(made, 0)
        elif product.activation:
            made = 0.5 * made * (1 + np.tanh(0.7978845608028654 * (made + 0.044715 * made**3)))
        _lay(result, product)[:] = made.astype(result.dtype)


def _lay(flat: Any, product: Product) -> Any:
    """Matrices as the result has them."""
    steps = [product.result_stride * flat.itemsize, product.result_line * flat.itemsize, flat.itemsize]
    return np.lib.stride_tricks.as_strided(flat, (product.batch, product.m, product.n), steps)


def _matrices(flat: Any, product: Product, side: str) -> Any:
    p, wide = product, flat.astype(np.float64 if product.dtype == "float64" else np.float32)
    if side == "left":
        shape, stride, line, is_swapped = (p.batch, p.m, p.k), p.left_stride, p.left_line, p.is_left_swapped
    else:
        shape, stride, line, is_swapped = (p.batch, p.k, p.n), p.right_stride, p.right_line, p.is_right_swapped
    steps = [stride, 1, line] if is_swapped else [stride, line, 1]
    return np.lib.stride_tricks.as_strided(wide, shape, [step * wide.itemsize for step in steps])


class FakeToolbox(Toolbox):
    def __init__(self, driver: FakeDriver) -> None:
        super().__init__(driver)
        self.opened: list[FakeProducts] = []
        self.has_cudnn = False
        self.convolvers: list[FakeConvolutions] = []
        self.compiled: list[Any] = []

    def open_products(self) -> ProductLibrary:
        assert isinstance(self.driver, FakeDriver)
        self.opened.append(FakeProducts(self.driver))
        return self.opened[-1]

    def has_convolutions(self) -> bool:
        return self.has_cudnn

    def open_convolutions(self, gpu: Gpu) -> ConvLibrary:
        if not self.has_cudnn:
            return super().open_convolutions(gpu)
        assert isinstance(self.driver, FakeDriver)
        self.convolvers.append(FakeConvolutions(self.driver))
        return self.convolvers[-1]

    def compile(self, request: Any) -> Any:
        self.compiled.append(request)
        return compile_fake(request)


def make_factory(**settings: Any) -> CudaFactory:
    return CudaFactory(FakeToolbox(FakeDriver(**settings)))


@contextmanager
def fake_cuda(store: str, **settings: Any) -> Iterator[tuple[CudaProvider, FakeDriver]]:
    """The provider 'cuda' over a device of paper."""
    from dovetail.provider.loader import set_default_options

    factory = make_factory(**settings)
    register_provider(factory)
    try:
        set_default_options("cuda", {"kernel_store": store})
        provider = get_provider("cuda")
        assert isinstance(provider, CudaProvider)
        driver = provider._toolbox.driver
        assert isinstance(driver, FakeDriver)
        yield provider, driver
    finally:
        set_default_options("cuda", {})
        unregister_provider("cuda")
