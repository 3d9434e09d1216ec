"""Shapes that inference could get wrong, from a model to a run: slices over open dims, loops that end early."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import dovetail as dt


def _model(nodes: list, inputs: list, outputs: list, constants: dict[str, np.ndarray]) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes, "g", inputs, outputs, [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


@pytest.mark.parametrize(
    ("start", "end", "step"),
    [(0, 5, 1), (2, 9, 1), (-3, 2**62, 1), (1, -1, 1), (0, 2**31 - 1, 2), (4, 2, 1), (-100, 3, 1), (1, 100, 3)],
)
@pytest.mark.parametrize("profile", [None, {"x": ((1, 2), (4, 2), (12, 2))}])
def test_slices_are_clamped_to_open_dims(start: int, end: int, step: int, profile: dict | None) -> None:
    names = ("s", "e", "a", "t")
    values = (start, end, 0, step)
    model = _model(
        [helper.make_node("Slice", ["x", *names], ["c"]), helper.make_node("Relu", ["c"], ["y"])],
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        {name: np.array([value], np.int64) for name, value in zip(names, values, strict=True)},
    )
    engine = dt.compile(model, shapes=profile)
    for rows in (1, 3, 5, 12):
        x = np.arange(rows * 2, dtype=np.float32).reshape(rows, 2)
        np.testing.assert_array_equal(engine(x), x[start:end:step])


def test_a_loop_that_its_condition_ends_is_as_long_as_it_ran() -> None:
    body = helper.make_graph(
        [
            helper.make_node("Add", ["v", "one"], ["w"]),
            helper.make_node("Less", ["w", "limit"], ["going"]),
            helper.make_node("Identity", ["w"], ["part"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            helper.make_tensor_value_info("v", TensorProto.FLOAT, []),
        ],
        [
            helper.make_tensor_value_info("going", TensorProto.BOOL, []),
            helper.make_tensor_value_info("w", TensorProto.FLOAT, []),
            helper.make_tensor_value_info("part", TensorProto.FLOAT, []),
        ],
    )
    model = _model(
        [
            helper.make_node("Loop", ["count", "", "x"], ["last", "parts"], body=body),
            helper.make_node("Neg", ["parts"], ["y"]),
        ],
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        {"count": np.array(10, np.int64), "one": np.array(1.0, np.float32), "limit": np.array(3.0, np.float32)},
    )
    engine = dt.compile(model)
    np.testing.assert_array_equal(engine(np.array(0.0, np.float32)), [-1.0, -2.0, -3.0])
    np.testing.assert_array_equal(engine(np.array(-20.0, np.float32)), -np.arange(-19.0, -9.0, dtype=np.float32))


def _one_op(op: str, inputs: list, opset: int = 20, **attributes: object) -> onnx.ModelProto:
    """The operator and a Relu behind it, whose memory is planned when the shape is known."""
    names = [value.name for value in inputs]
    nodes = [helper.make_node(op, names, ["t"], **attributes), helper.make_node("Relu", ["t"], ["y"])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    model = _model(nodes, inputs, outputs, {})
    model.opset_import[0].version = opset
    return model


def _floats(name: str, *dims: int | str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)


def _integers(name: str, *dims: int | str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.INT64, dims)


def _sample(*shape: int) -> np.ndarray:
    return np.arange(1, np.prod(shape, dtype=int) + 1, dtype=np.float32).reshape(shape)


@pytest.mark.parametrize(("first", "second"), [((1, 3), (4, 3)), ((4, 3), (1, 3)), ((2, 1), (1, 5)), ((3, 3), (3, 3))])
@pytest.mark.parametrize("profile", [None, {"x": ((1, 1), (2, 2), (5, 5)), "w": ((1, 1), (2, 2), (5, 5))}])
def test_two_open_dims_are_broadcast_either_way(first: tuple, second: tuple, profile: dict | None) -> None:
    engine = dt.compile(_one_op("Add", [_floats("x", "n", "m"), _floats("w", "k", "l")]), shapes=profile)
    x, w = _sample(*first), _sample(*second)
    np.testing.assert_array_equal(engine(x, w), x + w)


@pytest.mark.parametrize("batches", [(1, 4), (4, 1), (3, 3)])
def test_stacks_of_matrices_are_broadcast_either_way(batches: tuple[int, int]) -> None:
    engine = dt.compile(_one_op("MatMul", [_floats("x", "a", 2, 3), _floats("w", "b", 3, 2)]))
    x, w = _sample(batches[0], 2, 3), _sample(batches[1], 3, 2)
    np.testing.assert_array_equal(engine(x, w), x @ w)


@pytest.mark.parametrize("sizes", [(6, 4), (-1, 4), (3, -1), (0, -1), (0, 0)])
def test_sizes_that_the_caller_passes_may_be_marks(sizes: tuple[int, int]) -> None:
    engine = dt.compile(_one_op("Reshape", [_floats("x", "n", "m"), _integers("s", 2)]))
    x = _sample(4, 6)
    shape = [old if new == 0 else new for old, new in zip(x.shape, sizes, strict=True)]
    np.testing.assert_array_equal(engine(x, np.array(sizes)), x.reshape(shape))


@pytest.mark.parametrize("sizes", [(4, 6), (1, 1), (0, 6)])
def test_expand_to_sizes_that_the_caller_passes(sizes: tuple[int, int]) -> None:
    engine = dt.compile(_one_op("Expand", [_floats("x", "n", "m"), _integers("s", 2)]))
    x = _sample(1, 6)
    np.testing.assert_array_equal(engine(x, np.array(sizes)), x * np.ones(sizes, np.float32))


@pytest.mark.parametrize(("start", "end"), [(0, 3), (-2, 9), (1, -1), (-9, -7), (4, 2), (-1, 2**40)])
@pytest.mark.parametrize("axis", [0, -1])
def test_ends_of_slices_that_the_caller_passes(start: int, end: int, axis: int) -> None:
    bounds = [_integers(name, 1) for name in ("s", "e", "a")]
    engine = dt.compile(_one_op("Slice", [_floats("x", "n", "m"), *bounds]))
    x = _sample(5, 6)
    expected = x[start:end] if axis == 0 else x[:, start:end]
    np.testing.assert_array_equal(engine(x, np.array([start]), np.array([end]), np.array([axis])), expected)
    short = dt.compile(_one_op("Slice", [_floats("x", "n", "m"), *bounds[:2]]))
    np.testing.assert_array_equal(short(x, np.array([start]), np.array([end])), x[start:end])


def test_a_computed_end_of_a_slice_may_be_negative() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["n"]),
        helper.make_node("Sub", ["n", "three"], ["e"]),
        helper.make_node("Slice", ["x", "zero", "e"], ["t"]),
        helper.make_node("Relu", ["t"], ["y"]),
    ]
    constants = {"three": np.array([3]), "zero": np.array([0])}
    engine = dt.compile(_model(nodes, [_floats("x", "n")], [_floats("y", "k")], constants))
    for count in (1, 2, 3, 5):
        np.testing.assert_array_equal(engine(_sample(count)), _sample(count)[0 : count - 3])


@pytest.mark.parametrize("shape", [(2, 1, 3), (1, 1, 1), (2, 3, 4), (0, 1, 2)])
def test_squeezing_whatever_is_one(shape: tuple[int, ...]) -> None:
    engine = dt.compile(_one_op("Squeeze", [_floats("x", "a", "b", "c")]))
    np.testing.assert_array_equal(engine(_sample(*shape)), _sample(*shape).squeeze())


@pytest.mark.parametrize(("size", "count"), [(4, 2), (5, 3), (6, 3), (7, 4)])
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_a_pool_that_rounds_up_drops_a_window_in_the_padding(op: str, size: int, count: int) -> None:
    attributes = {"kernel_shape": [2], "strides": [2], "pads": [0, 1], "ceil_mode": 1}
    for dim in ("w", size):
        assert (
            dt.compile(_one_op(op, [_floats("x", 1, 1, dim)], 19, **attributes))(_sample(1, 1, size)).shape[2] == count
        )


def test_a_reshape_of_open_rank_keeps_its_type() -> None:
    engine = dt.compile(_one_op("Reshape", [_floats("x", "n"), _integers("s", "rank")]))
    np.testing.assert_array_equal(engine(_sample(6), np.array([1, 2, 3])), _sample(1, 2, 3))
    np.testing.assert_array_equal(engine(_sample(6), np.array([-1])), _sample(6))


def test_numbers_in_the_profile_are_planned_for_and_others_are_refused() -> None:
    config, profiles = dt.BuilderConfig(), [dt.OptimizationProfile(), dt.OptimizationProfile()]
    for profile, least in zip(profiles, (1, 5), strict=True):
        profile.set_shape("x", (1,), (4,), (64,))
        profile.set_shape_input("s", (least, 1), (least, 4), (least + 3, 8))
        config.add_optimization_profile(profile)
    engine = dt.compile(_one_op("Reshape", [_floats("x", "n"), _integers("s", 2)]), config=config, providers=["cpu"])
    assert engine.is_shape_inference_io("s")
    assert {value.kind for value in engine.manifest.programs[0].values[-2:]} == {"planned", "output"}
    np.testing.assert_array_equal(engine(_sample(8), np.array([2, 4])), _sample(2, 4))
    np.testing.assert_array_equal(engine(_sample(8), np.array([8, 1])), _sample(8, 1))  # only the second allows it
    with pytest.raises(dt.InputError, match=r"values \[-1, 4\] are outside profile 0"):
        engine(_sample(8), np.array([-1, 4]))


def test_a_loop_whose_state_grows() -> None:
    body = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["going"]), helper.make_node("Concat", ["v", "x"], ["w"], axis=0)],
        "body",
        [_integers("i"), helper.make_tensor_value_info("c", TensorProto.BOOL, []), _floats("v", "n", 2)],
        [helper.make_tensor_value_info("going", TensorProto.BOOL, []), _floats("w", "k", 2)],
    )
    nodes = [helper.make_node("Loop", ["count", "", "x"], ["t"], body=body), helper.make_node("Relu", ["t"], ["y"])]
    engine = dt.compile(_model(nodes, [_floats("x", "n", 2), _integers("count")], [_floats("y", "k", 2)], {}))
    for count in (0, 1, 3):
        expected = np.concatenate([_sample(2, 2)] * (count + 1))
        np.testing.assert_array_equal(engine(_sample(2, 2), np.array(count)), expected)


def test_a_scan_of_old_runs_over_batches() -> None:
    body = helper.make_graph(
        [helper.make_node("Add", ["a", "b"], ["c"]), helper.make_node("Identity", ["c"], ["d"])],
        "body",
        [_floats("a", 2), _floats("b", 2)],
        [_floats("c", 2), _floats("d", 2)],
    )
    node = helper.make_node("Scan", ["", "s", "x"], ["e", "y"], body=body, num_scan_inputs=1)
    inputs, outputs = [_floats("s", 1, 2), _floats("x", 1, 3, 2)], [_floats("e", 1, 2), _floats("y", 1, 3, 2)]
    model = _model([node], inputs, outputs, {})
    model.opset_import[0].version = 8
    start, steps = _sample(1, 2), _sample(1, 3, 2)
    results = dt.compile(model)(start, steps)
    expected = start[:, None] + np.cumsum(steps, 1)
    np.testing.assert_allclose(results["y"], expected, rtol=1e-6)
    np.testing.assert_allclose(results["e"], expected[:, -1], rtol=1e-6)
