"""Small networks, engines and loggers for tests of the tensorrt-shaped module."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail_tensorrt import trt

__all__ = ["KeptMessages", "build", "make_network", "relu_network", "run"]


class KeptMessages(trt.ILogger):
    """Keeps messages by severity."""

    def __init__(self) -> None:
        trt.ILogger.__init__(self)
        self.messages: list[tuple[str, str]] = []

    def log(self, severity: Any, msg: str) -> None:
        self.messages.append((severity.name, msg))

    @property
    def errors(self) -> list[str]:
        return [text for severity, text in self.messages if severity in ("ERROR", "INTERNAL_ERROR")]


def make_network(logger: Any) -> tuple[Any, Any]:
    builder = trt.Builder(logger)
    return builder, builder.create_network()


def relu_network(logger: Any, shape: tuple[int, ...] = (2, 3)) -> tuple[Any, Any]:
    builder, network = make_network(logger)
    x = network.add_input("x", trt.float32, shape)
    y = network.add_activation(x, trt.ActivationType.RELU).get_output(0)
    y.name = "y"
    network.mark_output(y)
    return builder, network


def build(logger: Any, shape: tuple[int, ...] = (2, 3), bounds: Any = None) -> Any:
    builder, network = relu_network(logger, shape)
    config = builder.create_builder_config()
    for each in bounds or ():
        profile = builder.create_optimization_profile()
        profile.set_shape("x", *each)
        config.add_optimization_profile(profile)
    return builder.build_engine_with_config(network, config)


def run(context: Any, x: np.ndarray, name: str = "y") -> np.ndarray:
    assert context.set_input_shape("x", x.shape)
    result = np.zeros(tuple(context.get_tensor_shape(name)), np.float32)
    context.set_tensor_address("x", x.ctypes.data)
    context.set_tensor_address(name, result.ctypes.data)
    assert context.execute_async_v3(0)
    return result
