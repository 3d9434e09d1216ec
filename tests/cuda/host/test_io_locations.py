"""Inputs and outputs stay on the device when an operator falls back to the host, and wrong addresses raise."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import dovetail
from dovetail.errors import InputError
from dovetail.provider.devices import MemoryAccess
from tests.cuda.channels_last import HEAD

ROWS, VOCABULARY = 8, 50257
"""Shape of logits for which CUDA refuses TopK: it compares every two elements of a row."""
HEADER = f"(float[{ROWS},{VOCABULARY}] x) => (float[{ROWS},50] y, int64[{ROWS},50] i) <int64[1] k = {{50}}>"
MODELS = {
    "last": HEADER + "{ a = Neg(x) y, i = TopK(a, k) }",
    "first": HEADER + "{ a, i = TopK(x, k) y = Neg(a) }",
    "only": HEADER + "{ y, i = TopK(x, k) }",
    "middle": HEADER + "{ a = Neg(x) b, j = TopK(a, k) y = Neg(b) i = Neg(j) }",
}
X = np.random.default_rng(0).permutation(ROWS * VOCABULARY).astype(np.float32).reshape(ROWS, VOCABULARY)


def upload(driver: Any, array: Any) -> int:
    """Return the address of a copy in memory of the device."""
    address: int = driver.allocate(max(array.nbytes, 1))
    driver.copy(address, array.ctypes.data, array.nbytes, 0)
    driver.synchronize()
    return address


def download(driver: Any, address: int, like: Any) -> Any:
    """Return the array of a shape and type at an address of the device."""
    array = np.empty_like(like)
    driver.copy(array.ctypes.data, address, array.nbytes, 0)
    driver.synchronize()
    return array


@pytest.mark.parametrize("position", MODELS)
def test_a_fallback_at_the_boundary_keeps_device_addresses_valid(paper: Any, position: str) -> None:
    model, driver = onnx.parser.parse_model(HEAD + MODELS[position]), paper[1]
    wanted = dovetail.compile(model, providers=["cpu"]).run(X)
    engine = dovetail.compile(model, providers=["cuda", "cpu"])
    steps = engine.manifest.programs[0].steps
    assert "TopK" in {step.op for step in steps if step.provider == "cpu"}
    assert {engine.get_tensor_location(name) for name in engine.tensor_names} == {dovetail.TensorLocation.DEVICE}
    context = engine.create_execution_context()
    source = upload(driver, X)
    targets = {name: upload(driver, np.zeros_like(array)) for name, array in wanted.items()}
    context.set_tensor_address("x", source)
    for name, address in targets.items():
        context.set_tensor_address(name, address)
    for _ in range(3):
        assert context.execute_async_v3(0)
        for name, address in targets.items():
            np.testing.assert_array_equal(download(driver, address, wanted[name]), wanted[name])


def test_the_kind_of_memory_at_an_address_is_the_drivers(paper: Any) -> None:
    provider, driver = paper
    provider.allocator  # noqa: B018 - opens the device
    assert provider.find_access(X.ctypes.data) == MemoryAccess.HOST
    assert provider.find_access(upload(driver, X)) == MemoryAccess.DEVICE
    assert provider.find_access(driver.allocate_pinned(16)) == MemoryAccess.HOST | MemoryAccess.DEVICE


def test_addresses_in_the_wrong_kind_of_memory_raise(paper: Any) -> None:
    text = "(float[4] x, int64[1] s) => (float[M] y) { a = Neg(x) y = Reshape(a, s) }"
    driver = paper[1]
    engine = dovetail.compile(onnx.parser.parse_model(HEAD + text), providers=["cuda", "cpu"])
    context, x, s = engine.create_execution_context(), np.ones(4, np.float32), np.array([4])
    with pytest.raises(InputError, match=r"'x'.*wrong kind of memory.*'cuda'.*host memory"):
        context.set_tensor_address("x", x.ctypes.data)
    with pytest.raises(InputError, match=r"'s'.*wrong kind of memory.*host memory.*'cuda'"):
        context.set_tensor_address("s", upload(driver, s))
    pinned = driver.allocate_pinned(16)
    assert context.set_tensor_address("x", pinned)


def test_a_cross_compilation_target_knows_no_address(paper: Any) -> None:
    from dovetail.provider.loader import get_provider

    assert get_provider("cuda", {"target": "sm_90"}).find_access(X.ctypes.data) is None


@pytest.mark.parametrize("on_host", range(8))
def test_locations_are_the_same_for_every_set_of_layers_on_the_host(paper: Any, on_host: int) -> None:
    """Each of three layers runs on the device or on the host, by an annotation."""
    text = "(float[2,3] x) => (float[2,3] y, float[2,3] z) { a = Neg(x) y = Exp(a) z = Add(y, x) }"
    model, driver = onnx.parser.parse_model(HEAD + text), paper[1]
    names = ["neg", "exp", "add"]
    for node, name in zip(model.graph.node, names, strict=True):
        node.name = name
    config = dovetail.BuilderConfig()
    config.layer_providers = {name: "cpu" for bit, name in enumerate(names) if on_host >> bit & 1}
    engine = dovetail.compile(model, providers=["cuda", "cpu"], config=config)
    assert {engine.get_tensor_location(name) for name in "xyz"} == {dovetail.TensorLocation.DEVICE}
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    wanted = {"y": np.exp(-x), "z": np.exp(-x) + x}
    context, targets = engine.create_execution_context(), {name: upload(driver, np.zeros_like(x)) for name in "yz"}
    context.set_tensor_addresses([upload(driver, x), *targets.values()])
    for _ in range(3):
        context.execute_async_v3(0)
        for name, address in targets.items():
            np.testing.assert_allclose(download(driver, address, x), wanted[name], rtol=1e-5)
    for name, result in engine.run(x).items():
        np.testing.assert_allclose(result, wanted[name], rtol=1e-5)
