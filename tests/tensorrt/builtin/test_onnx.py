"""ONNX models that name built-in plugins, as converters write them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import dovetail as dt
from tests.tensorrt.builtin.cases import CASES
from tests.tensorrt.builtin.problems import Problem
from tests.tensorrt.builtin.references import REFERENCES
from tests.tensorrt.builtin.running import compare, make_registry

RNG = np.random.default_rng(5)


def _make_model(problem: Problem, num_outputs: int, domain: str = "", **attributes: Any) -> onnx.ModelProto:
    names = [f"x{number}" for number in range(len(problem.inputs))]
    outputs = [f"y{number}" for number in range(num_outputs)]
    node = onnx.helper.make_node(problem.name, names, outputs, domain=domain, **problem.fields, **attributes)
    given = [
        onnx.helper.make_tensor_value_info(
            name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), [f"{name}_rows", *array.shape[1:]]
        )
        for name, array in zip(names, problem.inputs, strict=True)
    ]
    made = [onnx.ValueInfoProto(name=name) for name in outputs]
    opsets = [onnx.helper.make_opsetid("", 17)] + ([onnx.helper.make_opsetid(domain, 1)] if domain else [])
    return onnx.helper.make_model(onnx.helper.make_graph([node], "g", given, made), opset_imports=opsets)


def _run(model: onnx.ModelProto, problem: Problem) -> list[Any]:
    engine = dt.compile(model, registry=make_registry())
    result = engine(**{f"x{number}": array for number, array in enumerate(problem.inputs)})
    return [result[f"y{number}"] for number in range(len(result))] if isinstance(result, dict) else [result]


def _detector() -> Problem:
    corner = RNG.uniform(0, 60, (2, 40, 2))
    boxes = np.concatenate([corner, corner + RNG.uniform(5, 30, (2, 40, 2))], axis=2).astype(np.float32)
    scores = RNG.permutation(2 * 40 * 5).reshape(2, 40, 5).astype(np.float32) / 400
    return Problem("EfficientNMS_TRT", dict(CASES["nms"].fields), [boxes, scores])


@pytest.mark.parametrize("domain", ["", "TRT", "trt.plugins"])
def test_a_detector_ends_with_the_suppression(domain: str) -> None:
    problem = _detector()
    model = _make_model(problem, 4, domain, plugin_version="1")
    compare(_run(model, problem), REFERENCES[problem.name](problem.inputs, problem.fields), dtype=np.float32)


@pytest.mark.parametrize("name", [name for name in CASES if name not in ("nms", "nms with anchors", "scatter")])
def test_a_node_of_each_plugin_imports_and_runs(name: str) -> None:
    case = CASES[name]
    arrays = []
    for shape, kind in zip(case.shapes[0], case.types, strict=True):
        dtype = dt.DataType[kind].numpy
        arrays.append(
            RNG.integers(0, 2, shape).astype(dtype) if dtype.kind == "i" else RNG.normal(size=shape).astype(dtype)
        )
    problem = Problem(case.name, dict(case.fields), arrays, case.version)
    expected = REFERENCES[case.name](problem.inputs, problem.fields)
    model = _make_model(problem, len(expected), "TRT", plugin_version=case.version, plugin_namespace="")
    compare(_run(model, problem), expected, dtype=arrays[0].dtype)


def test_shapes_of_levels_may_be_int64_as_exporters_write_them() -> None:
    shapes = np.array([[2, 3], [1, 2]], np.int64)
    arrays = [
        RNG.normal(size=(1, 8, 2, 4)).astype(np.float32),
        shapes,
        np.array([0, 6], np.int64),
        RNG.uniform(size=(1, 3, 2, 2, 2, 2)).astype(np.float32),
        RNG.uniform(size=(1, 3, 2, 2, 2)).astype(np.float32),
    ]
    problem = Problem("MultiscaleDeformableAttnPlugin_TRT", {}, arrays)
    compare(_run(_make_model(problem, 1), problem), REFERENCES[problem.name](arrays, {}), dtype=np.float32)


def test_scatter_elements_is_the_plugin_where_the_node_says_so() -> None:
    """ONNX has an operator of that name, which goes first without a namespace."""
    arrays = [np.zeros((3, 4), np.float32), np.array([[0, 0], [1, -1], [3, 3]]), np.ones((3, 2), np.float32)]
    problem = Problem("ScatterElements", {"axis": 1, "reduction": "add"}, arrays, "2")
    model = _make_model(problem, 1, plugin_version="2", plugin_namespace="")
    engine = dt.compile(model, registry=make_registry())
    assert [step.kind for step in engine.manifest.programs[0].steps] == ["plugin"]
    compare(_run(model, problem), REFERENCES[problem.name](arrays, problem.fields), dtype=np.float32)
