"""Properties of tensors."""

from __future__ import annotations

import numpy as np
import pytest

import dovetail as dt
from dovetail.network.api.definition import Network
from dovetail.network.api.tensor import ALL_FORMATS


@pytest.fixture
def network() -> Network:
    network = Network()
    network.add_input("x", dt.float32, (-1, 3, -1))
    return network


def test_shape_is_a_copy(network: Network) -> None:
    x = network.get_input(0)
    x.shape[0] = 7
    assert x.shape == (-1, 3, -1)


def test_the_shape_of_an_input_can_be_set(network: Network) -> None:
    x = network.get_input(0)
    y = network.add_identity(x).get_output(0)
    assert y.shape == (-1, 3, -1)
    x.shape = (5, 3, 2)
    assert y.shape == (5, 3, 2)
    with pytest.raises(dt.UsageError, match="the shape follows from the layer"):
        y.shape = (1,)


def test_the_types_of_inputs_and_outputs_can_be_set() -> None:
    network = dt.Network()
    x = network.add_input("x", dt.float32, (2,))
    middle = network.add_identity(x).get_output(0)
    y = network.add_unary(middle, dt.UnaryOperation.NEG).get_output(0)
    y.name = "y"
    network.mark_output(y)
    x.dtype, middle.dtype, y.dtype = dt.float16, dt.int8, dt.int32  # between layers it has no effect
    assert (x.dtype, middle.dtype, y.dtype) == (dt.float16, dt.float32, dt.int32)
    graph = network.to_model().graph
    assert [(value.name, value.dtype.name) for value in graph.inputs] == [("x", "FLOAT16")]
    assert [(value.name, value.dtype.name) for value in graph.outputs] == [("y", "INT32")]
    assert [node.op_type for node in graph] == ["Cast", "Identity", "Neg", "Cast"]
    x.dtype, y.dtype = dt.float32, dt.float32
    assert [node.op_type for node in network.to_model().graph] == ["Identity", "Neg"]
    with pytest.raises(dt.UsageError, match="dtype"):
        x.dtype = "half"


def test_equal_dimension_names_are_equal_dimensions(network: Network) -> None:
    x = network.get_input(0)
    other = network.add_input("other", dt.float32, (-1, -1))
    assert x.get_dimension_name(0) is None
    x.set_dimension_name(0, "batch")
    other.set_dimension_name(0, "batch")
    assert other.get_dimension_name(0) == "batch"
    network.mark_output(network.add_identity(x).get_output(0))
    first, second = network.to_model().graph.inputs
    assert str(first.shape[0]) == str(second.shape[0]) == "batch"
    assert str(first.shape[2]) != str(second.shape[1])


@pytest.mark.parametrize("name", ["batch size", "2 * n", "?"])
def test_a_dimension_name_may_be_any_text(network: Network, name: str) -> None:
    x = network.get_input(0)
    other = network.add_input("other", dt.float32, (-1, -1))
    x.set_dimension_name(0, name)
    other.set_dimension_name(0, name)
    assert x.get_dimension_name(0) == name
    network.mark_output(network.add_identity(x).get_output(0))
    first, second = network.to_model().graph.inputs
    assert first.shape[0] == second.shape[0]


@pytest.mark.parametrize(
    ("index", "name", "message"),
    [
        (3, "n", "no such dimension; expected below 3, got 3"),
        (0, "", "the name of a dimension is wrong"),
    ],
)
def test_wrong_dimension_names(network: Network, index: int, name: str, message: str) -> None:
    with pytest.raises(dt.UsageError, match=message):
        network.get_input(0).set_dimension_name(index, name)


def test_only_inputs_have_dimension_names(network: Network) -> None:
    y = network.add_identity(network.get_input(0)).get_output(0)
    with pytest.raises(dt.UsageError, match="only dimensions of inputs can be named"):
        y.set_dimension_name(0, "n")


def test_names(network: Network) -> None:
    x = network.get_input(0)
    x.name = "image"
    assert x.name == "image"
    for wrong in ("", None, "n" * 5000):
        with pytest.raises(dt.UsageError, match="the name of a tensor is wrong"):
            x.name = wrong


def test_formats(network: Network) -> None:
    x = network.get_input(0)
    assert x.allowed_formats == ALL_FORMATS == (1 << 13) - 1
    x.allowed_formats = 1 << int(dt.TensorFormat.CHW32) | 1 << int(dt.TensorFormat.LINEAR)
    network.mark_output(network.add_identity(x).get_output(0))
    assert network.to_model().graph.inputs[0].metadata_props["dovetail.formats"] == str(0b100001)
    for wrong in (0, 1 << 13, -1):
        with pytest.raises(dt.UsageError, match="allowed_formats is not a set of formats"):
            x.allowed_formats = wrong


def test_ranges(network: Network) -> None:
    x = network.get_input(0)
    assert x.dynamic_range is None
    assert x.set_dynamic_range(-1, 2.5)
    assert x.dynamic_range == (-1.0, 2.5)
    y = network.add_identity(x).get_output(0)
    y.dynamic_range = (0, 1)
    network.mark_output(y)
    assert network.dynamic_ranges() == {"x": (-1.0, 2.5), y.name: (0.0, 1.0)}
    assert network.to_model().graph.inputs[0].metadata_props["dovetail.range"] == "-1.0 2.5"
    x.reset_dynamic_range()
    assert x.dynamic_range is None
    with pytest.raises(dt.UsageError, match=r"the range is empty; expected min < max, got \(2, 2\)"):
        x.set_dynamic_range(2, 2)


def test_location_and_batch(network: Network) -> None:
    x = network.get_input(0)
    assert x.location == dt.TensorLocation.DEVICE
    x.location = dt.TensorLocation.HOST
    assert x.location == dt.TensorLocation.HOST
    assert x.broadcast_across_batch is False


def test_shape_tensors_are_what_shapes_are_computed_from(network: Network) -> None:
    x = network.get_input(0)
    numbers = network.add_input("numbers", dt.int32, (2,))
    one = network.add_constant((2,), np.ones(2, np.int32)).get_output(0)
    bigger = network.add_elementwise(numbers, one, dt.ElementWiseOperation.SUM).get_output(0)
    sizes = network.add_shape(x).get_output(0)
    shuffle = network.add_shuffle(x)
    shuffle.set_input(1, bigger)
    for tensor in (numbers, one, bigger):
        assert tensor.is_shape_tensor
        assert not tensor.is_execution_tensor
    for tensor in (x, sizes, shuffle.get_output(0)):
        assert not tensor.is_shape_tensor
        assert tensor.is_execution_tensor
    network.add_cast(bigger, dt.float32)
    assert bigger.is_execution_tensor
    shuffle.set_input(1, sizes)
    assert sizes.is_shape_tensor
    assert not x.is_shape_tensor, "its shape is read, not its values"
    assert not numbers.is_shape_tensor


def test_a_tensor_that_cannot_be_named_in_the_contract_says_so(network: Network) -> None:
    x = network.get_input(0)
    assert "x" in repr(x)
    assert "Identity" in repr(network.add_identity(x))
