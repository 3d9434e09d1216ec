"""Inputs and outputs on the GPU when an operator falls back to the host, and addresses in the wrong kind of memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import dovetail
from dovetail.errors import InputError
from dovetail.provider.devices import MemoryAccess
from tests.cuda.channels_last import HEAD
from tests.cuda.host.test_io_locations import MODELS, X, download, upload


@pytest.mark.parametrize("position", MODELS)
def test_a_fallback_at_the_boundary_keeps_device_addresses_valid(cuda: Any, position: str) -> None:
    model, driver = onnx.parser.parse_model(HEAD + MODELS[position]), cuda._gpu.driver
    wanted = dovetail.compile(model, providers=["cpu"]).run(X)
    engine = dovetail.compile(model, providers=["cuda", "cpu"])
    assert {engine.get_tensor_location(name) for name in engine.tensor_names} == {dovetail.TensorLocation.DEVICE}
    context, source = engine.create_execution_context(), upload(driver, X)
    targets = {name: upload(driver, np.zeros_like(array)) for name, array in wanted.items()}
    try:
        context.set_tensor_address("x", source)
        for name, address in targets.items():
            context.set_tensor_address(name, address)
        for _ in range(3):
            assert context.execute_async_v3(0)
            for name, address in targets.items():
                np.testing.assert_array_equal(download(driver, address, wanted[name]), wanted[name])
    finally:
        for address in (source, *targets.values()):
            driver.free(address)


def test_addresses_in_the_wrong_kind_of_memory_raise(cuda: Any) -> None:
    text = "(float[4] x, int64[1] s) => (float[M] y) { a = Neg(x) y = Reshape(a, s) }"
    driver = cuda._gpu.driver
    context = dovetail.compile(
        onnx.parser.parse_model(HEAD + text), providers=["cuda", "cpu"]
    ).create_execution_context()
    pinned, shape = driver.allocate_pinned(16), upload(driver, np.array([4]))
    try:
        with pytest.raises(InputError, match=r"'x'.*wrong kind of memory.*host memory"):
            context.set_tensor_address("x", X.ctypes.data)
        with pytest.raises(InputError, match=r"'s'.*wrong kind of memory.*'cuda'"):
            context.set_tensor_address("s", shape)
        assert context.set_tensor_address("x", pinned)
        assert cuda.find_access(pinned) == MemoryAccess.HOST | MemoryAccess.DEVICE
        assert cuda.find_access(shape) == MemoryAccess.DEVICE
        assert cuda.find_access(X.ctypes.data) == MemoryAccess.HOST
    finally:
        driver.free_pinned(pinned)
        driver.free(shape)


def test_managed_memory_fits_both_kinds(cuda: Any) -> None:
    cupy = pytest.importorskip("cupy", reason="needs cupy for managed memory")
    memory = cupy.cuda.malloc_managed(64)
    assert cuda.find_access(memory.ptr) == MemoryAccess.HOST | MemoryAccess.DEVICE


def test_memory_of_the_stream_ordered_pool_is_device_memory(cuda: Any) -> None:
    driver = cuda._gpu.driver
    address = driver.allocate_async(256, 0)
    try:
        assert cuda.find_access(address) == MemoryAccess.DEVICE
    finally:
        driver.free(address)
