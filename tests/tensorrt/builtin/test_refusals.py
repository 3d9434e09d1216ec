"""What built-in plugins refuse: shapes, types and contents that do not fit, each with one message."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dovetail as dt
from dovetail.errors import DovetailError
from dovetail.testing import host_device
from dovetail_tensorrt.builtin import register_all
from tests.tensorrt.builtin.cases import CASES
from tests.tensorrt.builtin.problems import Problem
from tests.tensorrt.builtin.references import REFERENCES
from tests.tensorrt.builtin.running import TYPES, build_plan, compare, create, make_problem, run_engine, run_in_engine

SHAPES = [
    ("nms", {0: (2, 9, 5)}, "the shape of 'boxes' does not fit"),
    ("nms", {1: (2, 8, 3)}, "'boxes' and 'scores' have different sizes"),
    ("nms with anchors", {2: (3, 9, 4)}, "the shape of 'anchors' does not fit"),
    ("roi align", {0: (3, 8, 7)}, "the shape of 'X' does not fit"),
    ("roi align", {1: (5, 3)}, "the shape of 'rois' does not fit"),
    ("roi align", {2: (4,)}, "the shape of 'batch_indices' does not fit"),
    ("deformable attention", {1: (3, 3)}, "the shape of 'spatial_shapes' does not fit"),
    ("deformable attention", {4: (2, 5, 2, 3, 5)}, "'attention_weights' does not fit"),
    ("deformable convolution", {0: (2, 3, 6, 7)}, "channels of 'x' cannot be grouped"),
    ("deformable convolution", {1: (2, 34, 6, 4)}, "'offset' has other channels"),
    ("deformable convolution", {1: (2, 36, 5, 4)}, "the size of 'offset' does not fit"),
    ("deformable convolution", {4: (5,)}, "the length of 'bias' does not fit"),
    ("scatter", {2: (3, 6)}, "'updates' has another shape than 'indices'"),
    ("scatter", {1: (4, 5), 2: (4, 5)}, "'indices' is larger than 'data' along axis 0"),
    ("top k", {0: (2, 2, 3)}, "field 'k' is larger than the axis"),
    ("top k", {0: (8,)}, "the axis does not exist"),
    ("instance normalization", {0: (2, 4, 8, 8)}, "the input has another number of channels"),
    ("group normalization", {0: (2, 5, 8, 8)}, "the channels cannot be grouped"),
    ("group normalization", {1: (5,)}, "'scale' has another shape"),
    ("pillars", {1: (2, 8, 3)}, "the shape of 'voxel_coords' does not fit"),
    ("crop", {1: (2, 5, 3, 1)}, "the shape of 'rois' does not fit"),
    ("pyramid", {3: (2, 4, 2, 2)}, "the shape of feature map 2 does not fit"),
    ("disentangled attention", {1: (2, 16, 7)}, "the shape of 'data1' does not fit"),
]


@pytest.mark.parametrize(("name", "wrong", "message"), SHAPES)
def test_shapes_that_do_not_fit_are_told(name: str, wrong: dict[int, tuple[int, ...]], message: str) -> None:
    case = CASES[name]
    shapes = [wrong.get(number, shape) for number, shape in enumerate(case.shapes[0])]
    problem = Problem(case.name, dict(case.fields), [], case.version)
    with pytest.raises(DovetailError, match=message):
        _add(problem, shapes, case.types)


def _add(problem: Problem, shapes: list[tuple[int, ...]], types: tuple[str, ...]) -> None:
    builder = dt.Builder()
    network = builder.create_network()
    pairs = zip(shapes, types, strict=True)
    tensors = [network.add_input(f"x{n}", dt.DataType[kind], shape) for n, (shape, kind) in enumerate(pairs)]
    layer = network.add_plugin_v3(tensors, [], create(problem))
    network.mark_output(layer.get_output(0))
    builder.build_serialized_network(network, builder.create_builder_config())


def _zeros(name: str, **contents: Any) -> Problem:
    case = CASES[name]
    arrays = [np.zeros(shape, dt.DataType[kind].numpy) for shape, kind in zip(case.shapes[0], case.types, strict=True)]
    for key, value in contents.items():
        arrays[int(key[1:])][...] = value
    assert all(array.dtype in TYPES for array in arrays)
    return Problem(case.name, dict(case.fields), arrays, case.version)


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (_zeros("roi align", x2=2), r"a batch index names no image; expected 0 to 1, got 2"),
        (_zeros("scatter", x1=-5), r"an index is out of bounds; expected -4 to 3, got -5"),
        (_zeros("deformable attention", x1=4), r"level 0 does not lie in the value tensor"),
    ],
)
def test_contents_that_do_not_fit_are_told(problem: Problem, message: str) -> None:
    with pytest.raises(DovetailError, match=message):
        run_in_engine(problem)


def test_a_region_without_end_is_told() -> None:
    case = CASES["roi align"]
    problem = _zeros("roi align", x1=[0, 0, 1e9, 1e9])
    problem = Problem(case.name, {**case.fields, "sampling_ratio": 0}, problem.inputs, case.version)
    with pytest.raises(DovetailError, match="a region is too large to be sampled"):
        run_in_engine(problem)


def test_a_type_that_a_plugin_does_not_take_is_told() -> None:
    case = CASES["group normalization"]
    problem = Problem(case.name, dict(case.fields), [], case.version)
    with pytest.raises(DovetailError, match="format"):
        _add(problem, list(case.shapes[0]), ("HALF", "HALF", "HALF"))


def test_a_device_that_is_not_of_cuda_is_told_and_the_host_is_a_way_out() -> None:
    case = CASES["group normalization"]
    problem = make_problem(case)
    with host_device():
        config = dt.Builder().create_builder_config()
        config.providers = ["host_device", "cpu"]
        runtime = dt.Runtime()
        register_all(runtime.get_plugin_registry(), "")
        with pytest.raises(DovetailError, match="on a device that it has no kernels for"):
            build_plan(problem, config)
        config.run_plugins = False
        engine = runtime.deserialize_cuda_engine(build_plan(problem, config))
        with pytest.raises(DovetailError, match="on a device that it has no kernels for"):
            run_engine(engine, problem)
        config.run_plugins = True
        config.layer_providers = {"*": "cpu"}
        engine = runtime.deserialize_cuda_engine(build_plan(problem, config))
        expected = REFERENCES[case.name](problem.inputs, problem.fields)
        compare(run_engine(engine, problem), expected, dtype=np.float32)
