"""Engines on a device: addresses of the device for every tensor but shape inputs, whatever fell back to the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dovetail.testing import HostDevice, host_device
from dovetail_tensorrt import trt
from tests.support.trt_objects import KeptMessages, make_network

X = np.float32([[-1, 0, 1], [2, -3, 4]])
DEVICE, HOST = trt.TensorLocation.DEVICE, trt.TensorLocation.HOST


def build(logger: Any, device: HostDevice, *, reshapes: bool = False) -> Any:
    """Relu, softmax and top 2; with ``reshapes`` a reshape of the input by another one."""
    builder, network = make_network(logger)
    x = network.add_input("x", trt.float32, (2, 3))
    config = builder.create_builder_config()
    config.providers = [device.name, "cpu"]
    if reshapes:
        shape = network.add_input("s", trt.int64, (2,))
        layer = network.add_shuffle(x)
        layer.set_input(1, shape)
        outputs = [("y", layer.get_output(0))]
        profile = builder.create_optimization_profile()
        profile.set_shape_input("s", (1, 1), (3, 2), (6, 6))
        config.add_optimization_profile(profile)
    else:
        relu = network.add_activation(x, trt.ActivationType.RELU).get_output(0)
        top = network.add_topk(relu, trt.TopKOperation.MAX, 2, 1 << 1)
        outputs = [("y", top.get_output(0)), ("i", top.get_output(1))]
    for name, tensor in outputs:
        tensor.name = name
        network.mark_output(tensor)
    return builder.build_engine_with_config(network, config)


@pytest.mark.parametrize("ops", [None, ["Relu"], ["TopK"], []], ids=["all", "last falls back", "first", "none"])
@pytest.mark.parametrize("call", ["execute_async_v3", "execute_v2"])
def test_scripts_bind_device_addresses_whatever_falls_back(ops: Any, call: str) -> None:
    logger = KeptMessages()
    with host_device(ops=ops) as device:
        engine = build(logger, device)
        assert logger.errors == []
        assert {engine.get_tensor_location(name) for name in engine} == {DEVICE}
        context = engine.create_execution_context()
        arrays = {"x": device.to_device(X), "y": device.empty((2, 2), np.float32)}
        arrays["i"] = device.empty((2, 2), np.dtype(trt.nptype(engine.get_tensor_dtype("i"))))
        addresses = [arrays[name].address for name in engine]
        for name, address in zip(engine, addresses, strict=True):
            assert context.set_tensor_address(name, address)
        assert context.execute_v2(addresses) if call == "execute_v2" else context.execute_async_v3(0)
        np.testing.assert_array_equal(device.to_host(arrays["y"]), [[1, 0], [4, 2]])
        assert logger.errors == []


def test_an_address_in_the_wrong_kind_of_memory_fails_with_a_message() -> None:
    logger = KeptMessages()
    with host_device(ops=["Relu"]) as device:
        context = build(logger, device).create_execution_context()
        assert not context.set_tensor_address("x", X.ctypes.data)
        assert not context.execute_v2([X.ctypes.data] * 3)
        assert len(logger.errors) == 2
        assert all("'x'" in text and "wrong kind of memory" in text for text in logger.errors)


def test_a_shape_input_is_bound_on_the_host() -> None:
    logger = KeptMessages()
    with host_device() as device:
        engine = build(logger, device, reshapes=True)
        assert logger.errors == []
        assert {name: engine.get_tensor_location(name) for name in engine} == {"x": DEVICE, "s": HOST, "y": DEVICE}
        context, shape = engine.create_execution_context(), np.array([3, 2])
        source, target = device.to_device(X), device.empty((3, 2), np.float32)
        assert not context.set_tensor_address("s", device.to_device(shape).address)
        assert context.set_tensor_address("s", shape.ctypes.data)
        assert context.set_tensor_address("x", source.address)
        assert context.set_tensor_address("y", target.address)
        assert context.execute_async_v3(0)
        np.testing.assert_array_equal(device.to_host(target), X.reshape(3, 2))
