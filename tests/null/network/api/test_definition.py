"""Inputs, outputs, layers, names and weights of a network, and the model that follows from them."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import dovetail as dt
from dovetail.network.api.definition import INetworkDefinition, Network
from dovetail.network.api.emission import Emitter
from dovetail.network.api.tensor import ITensor

RELU = dt.ActivationType.RELU


def _relu(network: Network, tensor: ITensor) -> ITensor:
    return network.add_activation(tensor, RELU).get_output(0)


def _chain(count: int) -> tuple[Network, ITensor]:
    network = Network()
    tensor = network.add_input("x", dt.float32, (2, 3))
    for _ in range(count):
        tensor = _relu(network, tensor)
    return network, tensor


def test_the_contract_name_is_the_class() -> None:
    assert INetworkDefinition is Network is dt.Network


@pytest.mark.parametrize("shape", [(2, -1), [2, -1], np.array([2, -1]), dt.Dims([2, -1])])
def test_any_sequence_of_integers_is_a_shape(shape: object) -> None:
    network = Network()
    assert network.add_input("x", dt.float32, shape).shape == (2, -1)


def test_inputs_outputs_and_layers_are_counted_in_order() -> None:
    network, y = _chain(2)
    network.mark_output(y)
    assert (network.num_inputs, network.num_layers, network.num_outputs, len(network)) == (1, 2, 1, 2)
    assert network.get_input(0).name == "x"
    assert network.get_output(0) is y
    assert network.get_layer(1) is network[1] is network[-1] is list(network)[1]
    assert y.is_network_output
    assert not y.is_network_input
    assert network.get_input(0).is_network_input
    network.unmark_output(y)
    assert network.num_outputs == 0
    with pytest.raises(IndexError):
        network[2]


@pytest.mark.parametrize(
    ("name", "dtype", "shape", "message"),
    [
        ("", dt.float32, (1,), "the name of an input is wrong; expected a string of 1 to 4096 bytes, got ''"),
        (None, dt.float32, (1,), "the name of an input is wrong"),
        ("x" * 5000, dt.float32, (1,), "the name of an input is wrong"),
        ("x", dt.float32, (1,), "there is an input 'x' already"),
        ("y", "float32", (1,), "add_input 'y': 'dtype' is wrong; expected one of DataType: FLOAT, HALF"),
        ("y", dt.float32, (1, -2), "'shape' is wrong; expected a sequence of integers, each at least -1"),
        ("y", dt.float32, (1,) * 9, "'shape' is wrong; expected at most 8 dimensions"),
        ("y", dt.float32, 3, "'shape' is wrong; expected a sequence of integers"),
        ("y", dt.float32, (1.5,), "'shape' is wrong; expected a sequence of integers"),
    ],
)
def test_wrong_inputs_are_refused(name: str, dtype: dt.DataType, shape: object, message: str) -> None:
    network = Network()
    network.add_input("x", dt.float32, (1,))
    with pytest.raises(dt.UsageError, match=message):
        network.add_input(name, dtype, shape)
    assert network.num_inputs == 1


def test_wrong_outputs_are_refused() -> None:
    network, y = _chain(1)
    with pytest.raises(
        dt.UsageError, match="mark_output: tensor 'x' is an input\n  fix: mark the output of add_identity"
    ):
        network.mark_output(network.get_input(0))
    network.mark_output(y)
    with pytest.raises(dt.UsageError, match="is an output already"):
        network.mark_output(y)
    with pytest.raises(dt.UsageError, match="'tensor' is None; expected a tensor"):
        network.mark_output(None)
    with pytest.raises(dt.UsageError, match=r"'tensor' is a layer; expected a tensor.*\n  fix: pass get_output\(0\)"):
        network.mark_output(network.get_layer(0))
    with pytest.raises(dt.UsageError, match="the tensor is not an output"):
        network.unmark_output(network.get_input(0))
    with pytest.raises(dt.UsageError, match="output 7 does not exist; expected an index below 1"):
        network.get_output(7)


def test_tensors_of_another_network_are_refused() -> None:
    network, _ = _chain(0)
    other, y = _chain(1)
    with pytest.raises(dt.UsageError, match="add_activation: 'input' belongs to another network"):
        network.add_activation(y, RELU)
    with pytest.raises(dt.UsageError, match=r"'inputs\[1\]' belongs to another network"):
        network.add_concatenation([network.get_input(0), y])
    with pytest.raises(dt.UsageError, match="'tensor' belongs to another network"):
        network.mark_output(y)
    assert other.num_layers == 1
    assert network.num_layers == 0


def test_default_names() -> None:
    network, y = _chain(1)
    top = network.add_topk(y, dt.TopKOperation.MAX, 1, 1)
    assert network.get_layer(0).name == "(Unnamed Layer* 0) [Activation]"
    assert y.name == "(Unnamed Layer* 0) [Activation]_output"
    assert top.name == "(Unnamed Layer* 1) [TopK]"
    assert [top.get_output(i).name[-9:] for i in (0, 1)] == ["K]_output", "_output_1"]


def test_names_reach_the_model() -> None:
    network, y = _chain(1)
    kernel = np.ones((3, 3), np.float32)
    weights = network.add_constant((3, 3), kernel)
    weights.name = "weights"
    product = network.add_matrix_multiply(
        y, dt.MatrixOperation.NONE, weights.get_output(0), dt.MatrixOperation.TRANSPOSE
    )
    product.name, product.metadata = "project", "free text"
    product.get_output(0).name = "scores"
    network.mark_output(product.get_output(0))
    network.name = "head"
    graph = network.to_model().graph
    assert graph.name == "head"
    assert [value.name for value in graph.outputs] == ["scores"]
    assert [node.name for node in graph][1:] == ["project/Transpose", "project/MatMul"]
    assert {node.metadata_props["dovetail.layer"] for node in graph} == {"(Unnamed Layer* 0) [Activation]", "project"}
    assert graph[2].metadata_props["dovetail.metadata"] == "free text"
    (value,) = graph.initializers.values()
    assert value.name == "weights.constant"
    assert value.metadata_props["dovetail.weights"] == "constant"
    assert np.shares_memory(value.const_value.numpy(), kernel), "arrays are not copied"


def test_a_single_node_has_the_name_of_its_layer() -> None:
    network, y = _chain(1)
    network.mark_output(y)
    assert [node.name for node in network.to_model().graph] == ["(Unnamed Layer* 0) [Activation]"]


def test_the_model_is_kept_until_something_changes() -> None:
    network, y = _chain(2)
    network.mark_output(y)
    model = network.to_model()
    assert network.to_model() is model
    changes = (
        lambda: setattr(y, "name", "y"),
        lambda: setattr(network.get_layer(0), "type", dt.ActivationType.TANH),
        lambda: setattr(network.get_layer(0), "name", "first"),
        lambda: setattr(network.get_layer(0), "metadata", "text"),
        lambda: setattr(y, "allowed_formats", 1),
        lambda: _relu(network, y),
        lambda: network.add_input("z", dt.float32, (1,)),
        lambda: network.unmark_output(y) or network.mark_output(y),
        lambda: network.mark_debug(y),
        lambda: network.get_layer(0).set_input(0, network.get_input(0)),
    )
    for change in changes:
        change()
        fresh = network.to_model()
        assert fresh is not model
        model = fresh


def test_the_model_passes_the_onnx_checker() -> None:
    network, y = _chain(2)
    network.mark_output(y)
    proto = ir.to_proto(network.to_model())
    onnx.checker.check_model(proto, full_check=True)
    assert [(entry.domain, entry.version) for entry in proto.opset_import] == [("", 25)]


def test_a_constant_can_be_an_output() -> None:
    network = Network()
    tensor = network.add_constant((2,), np.arange(2, dtype=np.int32)).get_output(0)
    tensor.name = "numbers"
    network.mark_output(tensor)
    graph = network.to_model().graph
    assert [node.op_type for node in graph] == ["Identity"]
    assert graph.outputs[0].name == "numbers"


def test_a_network_without_outputs_has_no_model() -> None:
    network, _ = _chain(1)
    with pytest.raises(dt.ModelError, match="the network has no output\n  fix: call mark_output"):
        network.to_model()


def test_two_tensors_of_one_name_are_refused() -> None:
    network, y = _chain(2)
    network.mark_output(y)
    y.name = "x"
    with pytest.raises(dt.ModelError, match="two tensors are named 'x'; got an input and layer"):
        network.to_model()
    other = network.add_input("z", dt.float32, (1,))
    with pytest.raises(dt.UsageError, match="there is an input 'x' already"):
        other.name = "x"


def test_layers_of_one_name_get_nodes_of_different_names() -> None:
    network, y = _chain(2)
    network.get_layer(0).name = network.get_layer(1).name = "act"
    network.mark_output(y)
    graph = network.to_model().graph
    assert [node.name for node in graph] == ["act", "act_1"]
    assert {node.metadata_props["dovetail.layer"] for node in graph} == {"act"}


def test_names_of_parts_never_take_the_name_of_a_tensor() -> None:
    network, x = _chain(0)
    layer = network.add_elementwise(x, x, dt.ElementWiseOperation.FLOOR_DIV)
    layer.name = "div"
    y = _relu(network, layer.get_output(0))
    y.name = "div/Div:0"
    network.mark_output(y)
    names = [value.name for node in network.to_model().graph for value in node.outputs]
    assert len(set(names)) == len(names)
    assert names[-1] == "div/Div:0"


def test_layers_may_be_connected_in_any_order() -> None:
    network, x = _chain(0)
    first = network.add_activation(x, RELU)
    second = network.add_activation(x, dt.ActivationType.TANH)
    first.set_input(0, second.get_output(0))
    network.mark_output(first.get_output(0))
    assert [node.op_type for node in network.to_model().graph] == ["Tanh", "Relu"]
    assert first.get_output(0).shape == (2, 3)


def test_a_circle_is_refused() -> None:
    network, x = _chain(0)
    first = network.add_activation(x, RELU)
    second = network.add_activation(first.get_output(0), RELU)
    first.set_input(0, second.get_output(0))
    network.mark_output(second.get_output(0))
    with pytest.raises(dt.ModelError, match="the layer depends on itself\n  fix: use add_loop"):
        _ = second.get_output(0).shape
    with pytest.raises(dt.ModelError, match="layers depend on each other in a circle"):
        network.to_model()


def test_removing_tensors() -> None:
    network, y = _chain(2)
    middle = network.get_layer(0).get_output(0)
    with pytest.raises(dt.UsageError, match=r"is in use; got \(Unnamed Layer\* 1\)"):
        network.remove_tensor(middle)
    network.mark_output(y)
    with pytest.raises(dt.UsageError, match="it is an output of the network"):
        network.remove_tensor(y)
    network.unmark_output(y)
    network.remove_tensor(y)
    assert network.num_layers == 1
    spare = network.add_input("spare", dt.float32, ())
    network.remove_tensor(spare)
    assert network.num_inputs == 1
    network.add_input("spare", dt.int32, ())


def test_default_names_stay_unique_after_a_removal() -> None:
    network, y = _chain(2)
    network.remove_tensor(y)
    fresh = network.add_activation(network.get_layer(0).get_output(0), RELU)
    assert fresh.name == "(Unnamed Layer* 2) [Activation]"


# weights


def _convolution() -> tuple[Network, dt.IConvolutionLayer, np.ndarray]:
    network = Network()
    kernel = np.ones((2, 3, 1, 1), np.float32)
    x = network.add_input("x", dt.float32, (1, 3, 4, 4))
    layer = network.add_convolution_nd(x, 2, (1, 1), kernel, np.zeros(2, np.float32))
    network.mark_output(layer.get_output(0))
    return network, layer, kernel


@pytest.mark.parametrize("wrap", [lambda array: array, dt.Weights, lambda array: array.reshape(-1)])
def test_weights_can_be_named(wrap: object) -> None:
    network, layer, kernel = _convolution()
    assert network.set_weights_name(wrap(kernel), "w")  # type: ignore[operator]
    assert list(network.to_model().graph.initializers) == ["w", f"{layer.name}.bias"]
    with pytest.raises(dt.UsageError, match="no layer uses these weights"):
        network.set_weights_name(np.ones(6, np.float32), "other")


def test_weights_are_marked_for_refitting() -> None:
    network, layer, _ = _convolution()
    layer.name = "conv"
    network.mark_weights_refittable("conv.kernel")
    assert network.are_weights_marked_refittable("conv.kernel")
    marks = {
        name: value.metadata_props.get("dovetail.refittable")
        for name, value in network.to_model().graph.initializers.items()
    }
    assert marks == {"conv.kernel": "1", "conv.bias": None}
    with pytest.raises(dt.UsageError, match=r"there are no weights 'conv\.kernels'; expected conv\.kernel"):
        network.mark_weights_refittable("conv.kernels")
    network.unmark_weights_refittable("conv.kernel")
    with pytest.raises(dt.UsageError, match="are not marked"):
        network.unmark_weights_refittable("conv.kernel")


# the rest


def test_debug_and_shape_outputs_are_noted() -> None:
    network, y = _chain(1)
    network.mark_output(y)
    shape = network.add_shape(y).get_output(0)
    network.mark_output_for_shapes(shape)
    network.mark_debug(y)
    assert network.is_debug_tensor(y)
    assert shape.location == dt.TensorLocation.HOST
    assert shape.is_shape_tensor
    outputs = network.to_model().graph.outputs
    assert outputs[0].metadata_props["dovetail.debug"] == "1"
    assert outputs[1].metadata_props["dovetail.location"] == "host"
    assert outputs[1].metadata_props["dovetail.shape_output"] == "1"
    network.unmark_debug(y)
    network.unmark_output_for_shapes(shape)
    assert network.num_outputs == 1
    assert not network.is_debug_tensor(y)
    for undo in (network.unmark_debug, network.unmark_output_for_shapes):
        with pytest.raises(dt.UsageError):
            undo(y)
    assert network.mark_unfused_tensors_as_debug_tensors()
    assert network.unmark_unfused_tensors_as_debug_tensors()


def test_flags() -> None:
    strong, weak = Network(), Network(strongly_typed=False)
    flag = dt.NetworkDefinitionCreationFlag.STRONGLY_TYPED
    assert (strong.get_flag(flag), weak.get_flag(flag)) == (True, False)
    assert strong.flags == 1 << int(flag)
    assert not strong.has_implicit_batch_dimension
    with pytest.warns(DeprecationWarning, match="no context manager"), Network() as network:
        assert network.num_layers == 0
    assert network, "an empty network is true"


def test_reading_shapes_as_one_goes_writes_each_layer_once(monkeypatch: pytest.MonkeyPatch) -> None:
    written = []
    emit = Emitter.emit_layer
    monkeypatch.setattr(Emitter, "emit_layer", lambda self, layer: (written.append(layer), emit(self, layer)))
    network = Network()
    tensor = network.add_input("x", dt.float32, (2, -1))
    for _ in range(30):
        layer = network.add_activation(tensor, RELU)
        layer.type = dt.ActivationType.TANH
        tensor = layer.get_output(0)
        tensor.name = f"t{network.num_layers}"
        assert tensor.shape == (2, -1)
    assert len(written) == 30
    network.mark_output(tensor)
    network.to_model()
    network.to_model()
    assert len(written) == 60


def test_a_deep_network_is_no_problem() -> None:
    network, y = _chain(2000)
    assert y.shape == (2, 3)
    network.mark_output(y)
    assert len(network.to_model().graph) == 2000
