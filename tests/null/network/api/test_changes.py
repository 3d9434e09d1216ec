"""Layers are records: what is changed after they were added counts when types, shapes and the model are asked for."""

from __future__ import annotations

import numpy as np
import pytest

import dovetail as dt
from dovetail.network.api.definition import Network


@pytest.fixture
def network() -> Network:
    network = Network()
    network.add_input("x", dt.float32, (2, 3, 8, 8))
    return network


def test_shapes_follow_changes_behind_them(network: Network) -> None:
    pool = network.add_pooling_nd(network.get_input(0), dt.PoolingType.MAX, (2, 2))
    after = network.add_activation(pool.get_output(0), dt.ActivationType.RELU).get_output(0)
    assert after.shape == (2, 3, 7, 7)
    pool.stride_nd = (2, 2)
    assert after.shape == (2, 3, 4, 4)
    pool.padding_nd = (1, 1)
    assert after.shape == (2, 3, 5, 5)
    pool.padding_mode = dt.PaddingMode.SAME_UPPER
    assert after.shape == (2, 3, 4, 4)


def test_types_follow_changes(network: Network) -> None:
    cast = network.add_cast(network.get_input(0), dt.float16)
    after = network.add_identity(cast.get_output(0)).get_output(0)
    assert after.dtype == dt.float16
    cast.to_type = dt.int32
    assert after.dtype == dt.int32
    assert cast.get_output_type(0) == dt.int32


def test_inputs_can_be_replaced(network: Network) -> None:
    other = network.add_input("other", dt.float16, (4,))
    layer = network.add_identity(network.get_input(0))
    assert layer.get_output(0).shape == (2, 3, 8, 8)
    layer.set_input(0, other)
    assert layer.get_input(0) is other
    assert layer.get_output(0).shape == (4,)
    assert layer.get_output(0).dtype == dt.float16


def test_a_property_takes_the_place_of_an_input_and_the_other_way_round(network: Network) -> None:
    layer = network.add_shuffle(network.get_input(0))
    layer.reshape_dims = (2, -1)
    numbers = network.add_constant((3,), np.array([2, 3, 64], np.int32)).get_output(0)
    layer.set_input(1, numbers)
    assert layer.num_inputs == 2
    assert layer.get_output(0).shape == (2, 3, 64)
    layer.reshape_dims = (2, -1)
    assert layer.num_inputs == 1
    assert layer.get_output(0).shape == (2, 192)
    layer.set_input(1, numbers)
    layer.set_input(1, None)
    assert layer.get_output(0).shape == (2, 192)


def test_what_a_property_gives_is_a_copy(network: Network) -> None:
    pool = network.add_pooling_nd(network.get_input(0), dt.PoolingType.MAX, (2, 2))
    pool.stride_nd[0] = 5
    assert pool.stride_nd == (1, 1)
    shuffle = network.add_shuffle(network.get_input(0))
    shuffle.first_transpose = (0, 2, 3, 1)
    shuffle.first_transpose[0] = 3
    assert shuffle.first_transpose == (0, 2, 3, 1)


def test_an_error_stays_until_it_is_mended(network: Network) -> None:
    layer = network.add_softmax(network.get_input(0))
    after = network.add_identity(layer.get_output(0)).get_output(0)
    layer.axes = 1 << 6
    network.mark_output(after)
    for _ in range(2):
        with pytest.raises(dt.ModelError, match="'axes' has a bit beyond the last axis"):
            _ = after.shape
        with pytest.raises(dt.ModelError, match="'axes' has a bit beyond the last axis"):
            network.to_model()
    layer.axes = 1 << 3
    assert after.shape == (2, 3, 8, 8)
    assert len(network.to_model().graph) == 2


def test_defaults_that_follow_from_the_input(network: Network) -> None:
    x = network.get_input(0)
    assert network.add_softmax(x).axes == 1 << 1
    assert network.add_concatenation([x, x]).axis == 1
    assert network.add_shuffle(x).first_transpose == (0, 1, 2, 3)
    assert not network.add_shuffle(x).reshape_dims.is_valid
    small = network.add_input("small", dt.float32, (4, 4))
    assert network.add_softmax(small).axes == 1
    assert network.add_concatenation([small, small]).axis == 0


def test_types_that_are_asked_for_are_noted(network: Network) -> None:
    layer = network.add_activation(network.get_input(0), dt.ActivationType.RELU)
    assert not layer.precision_is_set
    assert layer.precision is None
    layer.precision = dt.float16
    layer.set_output_type(0, dt.float16)
    assert layer.precision_is_set
    assert layer.output_type_is_set(0)
    assert layer.get_output_type(0) == dt.float16
    network.mark_output(layer.get_output(0))
    (node,) = network.to_model().graph
    assert node.metadata_props["dovetail.precision"] == "HALF"
    assert node.outputs[0].metadata_props["dovetail.output_type"] == "HALF"
    layer.reset_precision()
    layer.reset_output_type(0)
    (node,) = network.to_model().graph
    assert "dovetail.precision" not in node.metadata_props
    assert layer.get_output_type(0) == dt.float32


def test_layer_types(network: Network) -> None:
    x = network.get_input(0)
    activation = network.add_activation(x, dt.ActivationType.TANH)
    assert activation.type == dt.ActivationType.TANH
    assert activation.layer_type == dt.LayerType.ACTIVATION
    assert network.add_identity(x).type == dt.LayerType.IDENTITY
    assert activation.num_ranks == 1
    with pytest.raises(dt.UsageError, match="a layer runs on one device"):
        activation.num_ranks = 2


def test_dynamic_shapes_stay_open_and_exact(network: Network) -> None:
    x = network.add_input("open", dt.float32, (-1, 6))
    shuffle = network.add_shuffle(x)
    shuffle.reshape_dims = (0, 2, 3)
    assert shuffle.get_output(0).shape == (-1, 2, 3)
    joined = network.add_concatenation([x, x])
    joined.axis = 1
    assert joined.get_output(0).shape == (-1, 12)
    joined.axis = 0
    assert joined.get_output(0).shape == (-1, 6)
