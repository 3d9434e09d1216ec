"""A model that is added to a network is the same model, and the network can be changed like any other."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import dovetail
from dovetail import ActivationType, BuilderFlag, LayerType
from tests.support.plugins import PlainCreator, ScalePlugin
from tests.support.random_models import make_random_model

MODEL = """
    <ir_version: 8, opset_import: ["" : 13]>
    small (float[N, 4] x) => (float[N, 4] y, float[M] z) <float[4] w = {1, 2, 3, 4}> {
        h = Relu(x)
        y = Mul(h, w)
        axes = Constant<value_ints=[1]>()
        z = ReduceSum<keepdims=0>(y, axes)
    }
"""


def _network(text: str = MODEL) -> dovetail.Network:
    network = dovetail.Builder().create_network()
    network.add_model(onnx.parser.parse_model(text))
    return network


def _build(network: dovetail.Network, *flags: BuilderFlag) -> dovetail.Engine:
    builder = dovetail.Builder()
    config = builder.create_builder_config()
    for flag in flags:
        config.set_flag(flag)
    profile = builder.create_optimization_profile()
    profile.set_shape("x", (1, 4), (2, 4), (8, 4))
    config.add_optimization_profile(profile)
    return builder.build_engine_with_config(network, config)


def test_names_types_and_shapes_are_those_of_the_model() -> None:
    network = _network()
    layers = [(layer.name, layer.layer_type) for layer in network]
    assert layers == [
        ("w", LayerType.CONSTANT),
        ("Relu", LayerType.ACTIVATION),
        ("Mul", LayerType.ELEMENTWISE),
        ("Constant", LayerType.CONSTANT),
        ("ReduceSum", LayerType.REDUCE),
    ]
    assert [network.get_output(i).name for i in range(network.num_outputs)] == ["y", "z"]
    assert network.get_input(0).get_dimension_name(0) == "N"
    assert network.get_output(0).shape == (-1, 4)
    assert network.get_output(1).shape == (-1,)
    network.get_input(0).shape = (3, 4)
    assert network.get_output(1).shape == (3,)


def test_weights_can_be_replaced_by_the_name_that_the_model_gives_them() -> None:
    engine = _build(_network(), BuilderFlag.REFIT)
    refitter = dovetail.Refitter(engine)
    assert refitter.get_all_weights() == ["w"]
    refitter.set_named_weights("w", np.full(4, 10, np.float32))
    refitter.refit_cuda_engine()
    np.testing.assert_array_equal(engine(np.float32([[-1, 1, 2, 3]]))["y"], np.float32([[0, 10, 20, 30]]))


def test_layers_can_be_added_to_a_model() -> None:
    network = _network()
    y = network.get_output(0)
    network.unmark_output(y)
    layer = network.add_activation(y, ActivationType.SIGMOID)
    layer.get_output(0).name = "s"
    network.mark_output(layer.get_output(0))
    x = np.float32([[-1, 1, 2, 3]])
    results = _build(network)(x)
    np.testing.assert_allclose(results["s"], 1 / (1 + np.exp(-np.float32([[0, 2, 6, 12]]))), rtol=1e-6)
    assert set(results) == {"s", "z"}
    assert network.to_model().opset_imports[""] == 25


def test_a_layer_that_does_not_fit_the_opset_of_the_model_is_refused() -> None:
    network = _network(MODEL.replace("Relu(x)", "ReduceMax<axes=[1]>(x)"))  # axes became an input in 18
    with pytest.raises(dovetail.ModelError, match=r"needs opset 25.*opset 13"):
        _ = network.add_reduce(network.get_input(0), dovetail.ReduceOperation.AVG, 2, True).get_output(0).shape


def test_a_network_that_is_not_empty_takes_no_model() -> None:
    with pytest.raises(dovetail.UsageError, match="not empty"):
        _network().add_model(onnx.parser.parse_model(MODEL))


def test_an_input_of_a_type_that_networks_do_not_have_is_refused() -> None:
    with pytest.raises(dovetail.ModelError, match=r"input 'x'.*type that networks do not have"):
        _network(MODEL.replace("float", "double"))


def test_an_output_that_is_an_input_passes_through_a_layer() -> None:
    text = '<ir_version: 8, opset_import: ["" : 13]> same (float[2] x) => (float[2] x) { }'
    network = _network(text)
    assert network.get_output(0).name == "x_output"


@pytest.mark.parametrize("seed", range(40))
def test_random_models_give_the_same_by_either_way(seed: int) -> None:
    case = make_random_model(seed)
    registry = dovetail.PluginRegistry()
    registry.register_creator(PlainCreator("TestScale", lambda factor: ScalePlugin(factor)), "")
    network = dovetail.Network(registry=registry)
    try:
        network.add_model(case.model)
    except dovetail.ModelError as error:
        if "that networks do not have" not in str(error):
            raise
        pytest.skip("an input of the model is of a type that networks do not have")
    expected = dovetail.compile(case.model, providers=["cpu"], registry=registry)
    got = dovetail.compile(network, providers=["cpu"], registry=registry)
    for feed in case.feeds:
        first, second = (context(**feed) for context in (expected, got))
        _compare(first, second)


def _compare(first: object, second: object) -> None:
    firsts = list(first.values()) if isinstance(first, dict) else [first]
    seconds = list(second.values()) if isinstance(second, dict) else [second]
    assert len(firsts) == len(seconds)
    for a, b in zip(firsts, seconds, strict=True):
        if isinstance(a, np.ndarray) and a.dtype.kind in "fiub":
            np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-6)
        else:
            assert str(a) == str(b)


def test_the_error_about_a_model_has_its_parts() -> None:
    text = MODEL.replace("Relu(x)", "Rellu(x)").replace("Mul(h, w)", "Mull(h, w)")
    with pytest.raises(dovetail.ModelError) as caught:
        _network(text)
    assert [part.where for part in caught.value.parts] == [
        "node 'Rellu' (Rellu, opset 13)",
        "node 'Mull' (Mull, opset 13)",
    ]


def test_a_layer_can_be_taken_for_its_kind() -> None:
    layer = _network().get_layer(1)
    assert layer.type == LayerType.ACTIVATION
    layer.__class__ = dovetail.IActivationLayer
    assert isinstance(layer, dovetail.IActivationLayer)
    assert (layer.type, layer.alpha) == (dovetail.ActivationType.RELU, 0.0)
    assert layer.op_type == "Relu"
    assert "alpha" in dir(layer)
    with pytest.raises(AttributeError, match="a layer that was read from a model has no 'kernel'"):
        _ = layer.kernel


NODES = """
<ir_version: 8, opset_import: ["" : 17]>
nodes (float[1, 2, 6, 6] x) => (float[1, 4, 36] y, float[1, 4] m, int64[1, 4, 1] a, float t)
<float[4, 1, 3, 3] w = {SIXES}, int64[3] s = {0, 4, -1}, int64[1] k = {2}>
{
    c = Conv<group = 2, auto_pad = "SAME_UPPER"> (x, w)
    p = AveragePool<kernel_shape = [3, 3], pads = [0, 1, 2, 1], count_include_pad = 1> (c)
    y = Reshape<allowzero = 1> (c, s)
    z = Transpose (y)
    m = ReduceMax<axes = [2], keepdims = 0> (y)
    v, i = TopK<largest = 0> (y, k)
    a = ArgMax<axis = 2> (y)
    t = ReduceSum<keepdims = 0> (p)
}
""".replace("SIXES", ", ".join(["1"] * 36))


def test_layers_of_a_model_say_what_their_nodes_say() -> None:
    network = _network(NODES)
    found = {layer.op_type: layer for layer in map(network.get_layer, range(network.num_layers)) if _has_node(layer)}
    conv, pool = found["Conv"], found["AveragePool"]
    assert conv.padding_mode == dovetail.PaddingMode.SAME_UPPER
    assert conv.kernel.size == 36
    assert conv.bias is None
    assert (tuple(pool.pre_padding), tuple(pool.post_padding)) == ((0, 1), (2, 1))
    assert pool.padding_mode == dovetail.PaddingMode.EXPLICIT_ROUND_DOWN
    assert not pool.average_count_excludes_padding
    assert (tuple(found["Reshape"].reshape_dims), found["Reshape"].zero_is_placeholder) == ((0, 4, -1), False)
    assert tuple(found["Reshape"].first_transpose) == (0, 1, 2, 3)
    assert tuple(found["Transpose"].first_transpose) == (2, 1, 0)
    assert (found["ReduceMax"].axes, found["ReduceSum"].axes) == (1 << 2, 0b1111)
    assert (found["TopK"].op, found["TopK"].k, found["TopK"].axes) == (dovetail.TopKOperation.MIN, 2, 1 << 2)
    assert (found["ArgMax"].k, found["ArgMax"].axes) == (1, 1 << 2)


def _has_node(layer: object) -> bool:
    return hasattr(layer, "op_type")
