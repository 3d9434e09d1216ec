"""Refitting: every call applies the weights that are set, with the values that their memory holds then."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail_tensorrt import trt
from tests.support.trt_objects import KeptMessages

PROVIDERS = [None, ["cpu"], ["onnxruntime", "cpu"]]


class _Product:
    """An engine for ``x @ w`` that can be refitted, with its input and output bound."""

    def __init__(self, providers: Any) -> None:
        self.logger = KeptMessages()
        builder = trt.Builder(self.logger)
        network = builder.create_network()
        x = network.add_input("x", trt.float32, (1, 2))
        constant = network.add_constant((2, 2), np.eye(2, dtype=np.float32))
        constant.name = "w"
        none = trt.MatrixOperation.NONE
        y = network.add_matrix_multiply(x, none, constant.get_output(0), none).get_output(0)
        y.name = "y"
        network.mark_output(y)
        config = builder.create_builder_config()
        config.set_flag(trt.BuilderFlag.REFIT)
        config.providers = providers
        self.engine = builder.build_engine_with_config(network, config)
        self.context = self.engine.create_execution_context()
        self.x, self.y = np.array([[1, 10]], np.float32), np.zeros((1, 2), np.float32)
        self.context.set_tensor_address("x", self.x.ctypes.data)
        self.context.set_tensor_address("y", self.y.ctypes.data)
        self.refitter = trt.Refitter(self.engine, self.logger)
        (self.name,) = self.refitter.get_all_weights()

    def run(self) -> list[float]:
        assert self.context.execute_async_v3(0)
        return self.y.reshape(-1).tolist()


@pytest.mark.parametrize("providers", PROVIDERS)
def test_each_refit_reads_the_memory_of_the_weights_again(providers: Any) -> None:
    product = _Product(providers)
    weights = np.eye(2, dtype=np.float32)
    assert product.refitter.set_named_weights(product.name, trt.Weights(trt.float32, weights.ctypes.data, 4))
    for factor in (2, 3, 5):
        weights[...] = factor * np.eye(2)
        assert product.refitter.refit_cuda_engine()
        assert product.run() == [factor, 10 * factor]


@pytest.mark.parametrize("make", [lambda array: array, lambda array: trt.Weights(array), lambda array: array.T])
def test_every_form_of_weights_is_read_again(make: Any) -> None:
    product = _Product(["cpu"])
    weights = np.eye(2, dtype=np.float32)
    assert product.refitter.set_named_weights(product.name, make(weights))
    assert product.refitter.refit_cuda_engine()
    weights *= 4
    assert product.refitter.refit_cuda_engine_async(0)
    assert product.run() == [4, 40]


def test_set_weights_by_layer_and_role_is_kept_for_the_next_refit() -> None:
    product = _Product(["cpu"])
    weights = np.eye(2, dtype=np.float32)
    assert product.refitter.set_weights("w.constant", trt.WeightsRole.CONSTANT, trt.Weights(weights))
    assert product.refitter.refit_cuda_engine()
    weights *= 6
    assert product.refitter.refit_cuda_engine()
    assert product.run() == [6, 60]


def test_unset_weights_stay_as_the_last_refit_left_them() -> None:
    product = _Product(["cpu"])
    weights = 2 * np.eye(2, dtype=np.float32)
    product.refitter.set_named_weights(product.name, trt.Weights(weights))
    assert product.refitter.refit_cuda_engine()
    assert product.refitter.unset_named_weights(product.name)
    weights *= 100
    assert product.refitter.refit_cuda_engine()
    assert product.run() == [2, 20]
    assert not product.refitter.unset_named_weights(product.name)


def test_values_that_became_invalid_fail_the_refit_and_change_nothing() -> None:
    product = _Product(["cpu"])
    weights = np.eye(2, dtype=np.float32)
    product.refitter.set_named_weights(product.name, trt.Weights(weights))
    weights[0, 0] = np.nan
    assert not product.refitter.refit_cuda_engine()
    assert "NaN" in product.logger.errors[-1]
    assert product.run() == [1, 10]
    product.refitter.weights_validation = False
    assert product.refitter.refit_cuda_engine()
    assert np.isnan(product.run()[0])


def test_another_refitter_of_the_engine_applies_its_own_weights() -> None:
    product = _Product(["cpu"])
    product.refitter.set_named_weights(product.name, 2 * np.eye(2, dtype=np.float32))
    assert product.refitter.refit_cuda_engine()
    other = dovetail.Refitter(product.engine.engine)
    other.set_named_weights(product.name, 3 * np.eye(2, dtype=np.float32))
    assert other.refit_cuda_engine()
    assert product.run() == [3, 30]
    assert product.refitter.refit_cuda_engine()
    assert product.run() == [2, 20]


def test_layers_and_roles_of_constants_and_of_scales_with_an_exponent() -> None:
    logger = trt.Logger()
    builder = trt.Builder(logger)
    network = builder.create_network(0)
    x = network.add_input("x", trt.float32, (1, 3, 1, 1))
    constant = network.add_constant((1, 3, 1, 1), np.ones(3, np.float32))
    constant.name = "k"
    product = network.add_elementwise(x, constant.get_output(0), trt.ElementWiseOperation.PROD).get_output(0)
    ones = np.ones(3, np.float32)
    scale = network.add_scale(product, trt.ScaleMode.CHANNEL, np.zeros(3, np.float32), ones, ones)
    scale.name = "s"
    network.mark_output(scale.get_output(0))
    config = builder.create_builder_config()
    config.set_flag(trt.BuilderFlag.REFIT)
    engine = trt.Runtime(logger).deserialize_cuda_engine(builder.build_serialized_network(network, config))
    refitter = trt.Refitter(engine, logger)
    layers, roles = refitter.get_all()
    found = set(zip(layers, roles, strict=True))
    assert ("k", trt.WeightsRole.CONSTANT) in found
    assert {("s", trt.WeightsRole.SCALE), ("s", trt.WeightsRole.SHIFT), ("s", trt.WeightsRole.ANY)} <= found
    assert refitter.set_weights("k", trt.WeightsRole.CONSTANT, np.full(3, 5, np.float32))
    assert refitter.refit_cuda_engine()
