"""Rule 1.4: the number, types and shapes of outputs, shape inputs, and what a plugin is configured with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dovetail as trt
from dovetail.plugin import as_array
from tests.conformance.contract.authors import (
    LINEAR,
    Filled,
    Many,
    Plus,
    PlusCreator,
    breaking,
    build,
    details,
    load,
    one_plugin,
)

X = np.arange(6, dtype=np.float32).reshape(2, 3)


# num_outputs, get_output_data_types


@pytest.mark.parametrize("count", [0, -1, "1", None, 1.5])
def test_num_outputs_is_positive(count: Any) -> None:
    plugin = Plus()
    plugin.num_outputs = count
    with pytest.raises(trt.PluginError, match="num_outputs"):
        build(one_plugin(plugin))


def test_num_outputs_may_be_any_integer_type() -> None:
    plugin = Plus()
    plugin.num_outputs = np.int64(1)
    build(one_plugin(plugin))


def test_several_outputs_of_several_types() -> None:
    engine = load(build(one_plugin(Many())), PlusCreator(Many))
    result = engine(X)
    assert [result[f"y{i}"].dtype for i in range(3)] == [np.float32, np.float16, np.int32]
    np.testing.assert_array_equal(result["y1"], X.T.astype(np.float16))
    np.testing.assert_array_equal(result["y2"], X.shape)


def test_outputs_nobody_uses_still_have_memory() -> None:
    def fill(network: Any) -> Any:
        return network.add_plugin_v3([network.add_input("x", trt.float32, (2, 3))], [], Many()).get_output(1)

    np.testing.assert_array_equal(load(build(fill), PlusCreator(Many))(X), X.T.astype(np.float16))


def test_an_output_of_the_network_may_also_be_used_inside() -> None:
    def fill(network: Any) -> Any:
        x = network.add_input("x", trt.float32, (2, 3))
        a = network.add_plugin_v3([x], [], Plus(1.0)).get_output(0)
        b = network.add_plugin_v3([a], [], Plus(10.0)).get_output(0)
        return [a, b, network.add_elementwise(a, b, trt.ElementWiseOperation.SUM).get_output(0)]

    result = load(build(fill), PlusCreator())(X)
    np.testing.assert_array_equal(result["y0"], X + 1)
    np.testing.assert_array_equal(result["y1"], X + 11)
    np.testing.assert_array_equal(result["y2"], 2 * X + 12)


@pytest.mark.parametrize(
    "result",
    [[], [trt.float32] * 2, None, trt.float32, ["float32"], [None], [99], ValueError("no types")],
    ids=repr,
)
def test_bad_output_types_end_the_network(result: Any) -> None:
    with pytest.raises(trt.PluginError, match="get_output_data_types"):
        build(one_plugin(breaking("get_output_data_types", result)()))


def test_a_plugin_without_inputs() -> None:
    class Source(Plus):
        def get_output_data_types(self, input_types: Any) -> Any:
            assert list(input_types) == []
            return [trt.float32]

        def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
            assert (len(inputs), len(shape_inputs)) == (0, 0)
            return [trt.DimsExprs([exprBuilder.constant(2), exprBuilder.constant(3)])]

        def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> bool:
            assert (pos, num_inputs, len(in_out)) == (0, 0, 1)
            return in_out[0].desc.type == trt.float32 and in_out[0].desc.format == LINEAR

        def enqueue(
            self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: Any, stream: Any
        ) -> None:
            assert (len(input_desc), len(inputs)) == (0, 0)
            as_array(outputs[0], output_desc[0])[...] = self.addend

    def alone(network: Any) -> Any:
        return network.add_plugin_v3([], [], Source(4.0)).get_output(0)

    def added(network: Any) -> Any:
        x = network.add_input("x", trt.float32, (2, 3))
        return network.add_elementwise(x, alone(network), trt.ElementWiseOperation.SUM).get_output(0)

    np.testing.assert_array_equal(load(build(alone), PlusCreator(Source))(), np.full((2, 3), 4, np.float32))
    np.testing.assert_array_equal(load(build(added), PlusCreator(Source))(X), X + 4)


# get_output_shapes


@pytest.mark.parametrize("result", [[], None, [None], [(2, 3)], [[2, 3]], ValueError("no shape")], ids=repr)
def test_bad_output_shapes_end_the_build(result: Any) -> None:
    with pytest.raises(trt.PluginError, match="get_output_shapes"):
        build(one_plugin(breaking("get_output_shapes", result)()))


def test_expressions_may_outlive_the_call_and_mix_between_builders() -> None:
    kept: list[Any] = []

    class Hoarder(Plus):
        def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
            kept.append(exprBuilder.constant(3))
            return [trt.DimsExprs([inputs[0][0], kept[0]])]

    np.testing.assert_array_equal(load(build(one_plugin(Hoarder())), PlusCreator(Hoarder))(X), X + 1)
    assert len(kept) >= 3


# shape inputs


def test_a_constant_shape_input() -> None:
    def fill(network: Any) -> Any:
        x = network.add_input("x", trt.float32, (2, 3))
        shape = network.add_constant((2,), np.array([4, 5], np.int64)).get_output(0)
        return network.add_plugin_v3([x], [shape], Filled(7.0)).get_output(0)

    trace: list[Any] = []
    assert load(build(fill), PlusCreator(Filled, trace))(X).shape == (4, 5)


def test_a_matrix_as_shape_input_is_flattened() -> None:
    trace: list[Any] = []

    def fill(network: Any) -> Any:
        x = network.add_input("x", trt.float32, (2, 3))
        shape = network.add_constant((2, 3), np.array([[1, 2, 1], [3, 1, 1]], np.int32)).get_output(0)
        return network.add_plugin_v3([x], [shape], Filled(7.0, trace)).get_output(0)

    assert load(build(fill), PlusCreator(Filled))(X).shape == (1, 2, 1, 3, 1, 1)
    assert all(counts == [6] for counts in details(trace, "shape_inputs"))


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("form", [(2,), (1, 2)])
def test_a_shape_input_of_the_network(dtype: Any, form: tuple[int, ...]) -> None:
    trace: list[Any] = []

    def fill(network: Any) -> Any:
        x = network.add_input("x", trt.float32, (2, 3))
        s = network.add_input("s", trt.int32 if dtype is np.int32 else trt.int64, form)
        return network.add_plugin_v3([x], [s], Filled(7.0, trace)).get_output(0)

    def bounds(config: Any) -> None:
        profile = trt.OptimizationProfile()
        profile.set_shape_input("s", (1, 1), (2, 3), (8, 9))
        config.add_optimization_profile(profile)

    engine = load(build(fill, configure=bounds), PlusCreator(Filled))
    for shape in ((2, 3), (8, 9), (1, 4)):
        y = engine(X, np.array(shape, dtype).reshape(form))
        assert y.shape == shape
        assert (y == 7).all()
    if len(form) == 1:
        out = details(trace, "configure_plugin")[0][1][0]
        assert (tuple(out.desc.dims), tuple(out.min), tuple(out.opt), tuple(out.max)) == (
            (-1, -1),
            (1, 1),
            (2, 3),
            (8, 9),
        )


def test_a_scalar_shape_input_and_several() -> None:
    def fill(network: Any) -> Any:
        x = network.add_input("x", trt.float32, (-1, 3))
        rows = network.add_constant((), np.array(2, np.int32)).get_output(0)
        computed = network.add_shape(x).get_output(0)
        return network.add_plugin_v3([x], [rows, computed], Filled(7.0)).get_output(0)

    engine = load(build(fill, profiles=[{"x": ((1, 3), (2, 3), (4, 3))}]), PlusCreator(Filled))
    assert engine(np.zeros((4, 3), np.float32)).shape == (2, 4, 3)


def test_shape_inputs_are_integers() -> None:
    def fill(network: Any) -> Any:
        x = network.add_input("x", trt.float32, (2, 3))
        return network.add_plugin_v3([x], [x], Filled()).get_output(0)

    with pytest.raises(trt.UsageError, match="shape_inputs"):
        build(fill)


# configure_plugin


def test_configure_sees_wildcards_and_the_profiles_bounds_on_both_sides() -> None:
    class Doubling(Plus):
        def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
            two = exprBuilder.constant(2)
            rows = exprBuilder.operation(trt.DimensionOperation.PROD, inputs[0][0], two)
            return [trt.DimsExprs([rows, inputs[0][1]])]

        def compute(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any) -> None:
            x = as_array(inputs[0], input_desc[0])
            as_array(outputs[0], output_desc[0])[...] = np.concatenate([x, x])

    trace: list[Any] = []
    plan = build(one_plugin(Doubling(1.0, trace), (-1, 3)), profiles=[{"x": ((1, 3), (2, 3), (8, 3))}])
    for inputs, outputs in details(trace, "configure_plugin"):
        [x], [y] = inputs, outputs
        assert (x.desc.dims, x.min, x.opt, x.max) == ((-1, 3), (1, 3), (2, 3), (8, 3))
        assert (y.desc.dims, y.min, y.opt, y.max) == ((-1, 3), (2, 3), (4, 3), (16, 3))
        assert (x.desc.type, x.desc.format, x.desc.scale) == (trt.float32, LINEAR, -1.0)
    assert load(plan, PlusCreator(Doubling))(X).shape == (4, 3)


def test_static_dims_have_no_wildcards() -> None:
    trace: list[Any] = []
    build(one_plugin(Plus(1.0, trace)))
    [x], _ = details(trace, "configure_plugin")[0]
    assert (x.desc.dims, x.min, x.opt, x.max) == ((2, 3),) * 4


def test_configure_is_not_called_at_run_time() -> None:
    trace: list[Any] = []
    engine = load(build(one_plugin(Plus())), PlusCreator(Plus, trace))
    engine(X)
    for method in ("configure_plugin", "get_output_shapes", "supports_format_combination", "get_valid_tactics"):
        assert not details(trace, method)
