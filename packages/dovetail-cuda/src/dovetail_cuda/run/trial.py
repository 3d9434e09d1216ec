"""Products run for the sake of their time: operands on the device, and every way to multiply them on one stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dovetail.errors import ResourceError
from dovetail.provider.interfaces import Stream
from dovetail_cuda.run.cublaslt import ProductLibrary
from dovetail_cuda.run.driver import Launch, Parameters
from dovetail_cuda.run.gpu import Gpu
from dovetail_cuda.run.payload import WORKSPACE_BYTES, Product

__all__ = ["ProductTrial"]


class ProductTrial:
    """One product over operands of its own.

    Args:
        product: What is multiplied.
        inputs: Its operands, as arrays of the host.
        gpu: Where it runs.
        allocator: Where the memory comes from.
        library: What has algorithms.
    """

    def __init__(
        self, product: Product, inputs: Sequence[Any], *, gpu: Gpu, allocator: Any, library: ProductLibrary
    ) -> None:
        self.product = product
        self._gpu, self._allocator, self._library = gpu, allocator, library
        self._result = np.empty((product.batch, product.m, product.n), np.dtype(product.dtype))
        self._blocks: list[int] = []
        self._libraries: list[int] = []
        try:
            self._inputs = [self._upload(array) for array in inputs]
            self._output = self._take(self._result.nbytes)
            self._workspace = self._take(WORKSPACE_BYTES)
        except BaseException:
            self.close()
            raise

    def start_library(self, algorithm: bytes, stream: Stream) -> Callable[[], None]:
        """A product by the library."""
        _ = self._gpu.driver  # its context is current from here on
        run, addresses = self._library.prepare(self.product, algorithm), [*self._inputs, self._output]

        def run_once() -> None:
            _ = self._gpu.driver
            run(addresses, self._workspace, stream.handle)

        return run_once

    def start_kernel(
        self, code: bytes, name: str, grid: tuple[int, int, int], shape: tuple[int, int], stream: Stream
    ) -> Callable[[], None]:
        """A product by a kernel: left, right, bias or nothing, and the result."""
        driver, (num_warps, shared_bytes) = self._gpu.driver, shape
        library = driver.load_library(code)
        self._libraries.append(library)
        function = driver.find_function(library, name, shared_bytes)
        launch = Launch(function=function, grid=grid, threads=32 * num_warps, shared_bytes=shared_bytes)
        inputs = self._inputs if self.product.has_bias else [*self._inputs, self._inputs[0]]
        parameters = Parameters([*inputs, self._output])

        def run_once() -> None:
            self._gpu.driver.launch(launch, parameters, stream.handle)

        return run_once

    def spoil_result(self) -> None:
        """Write what no product gives, so that a result that is not written shows."""
        garbage = np.full(self._result.nbytes, 0xFF, np.uint8)
        self._gpu.driver.copy(self._output, garbage.ctypes.data, garbage.nbytes, 0)
        self._gpu.driver.synchronize()

    def read_result(self) -> Any:
        """What was computed last."""
        driver, found = self._gpu.driver, np.empty_like(self._result)
        driver.synchronize()
        driver.copy(found.ctypes.data, self._output, found.nbytes, 0)
        driver.synchronize()
        return found

    def close(self) -> None:
        """Give everything back."""
        driver = self._gpu.driver
        driver.synchronize()
        for library in self._libraries:
            driver.unload_library(library)
        for block in self._blocks:
            self._allocator.deallocate(block)
        self._libraries, self._blocks = [], []

    def _take(self, size_bytes: int) -> int:
        address: int = self._allocator.allocate(size_bytes, 256, 0)
        if not address:
            raise ResourceError("no memory to time a product", where="provider 'cuda'", got=f"{size_bytes} bytes")
        self._blocks.append(address)
        return address

    def _upload(self, array: Any) -> int:
        address, whole = self._take(array.nbytes), np.ascontiguousarray(array)
        self._gpu.driver.copy(address, whole.ctypes.data, whole.nbytes, 0)
        self._gpu.driver.synchronize()
        return address
