"""onnx's node tests whose shapes, axes and counts are inputs, with these as constants, as models have them."""

from __future__ import annotations

import fnmatch
import warnings
from typing import Any

import numpy as np
import onnx
import pytest

import dovetail
from tests.conformance.onnx_backend.harness import Case, compare, load_cases, load_skips

GROUPS = {
    "resize": ("test_resize*", "test_upsample*"),
    "sorts": ("test_top_k*",),
    "grids": ("test_affine_grid_?d", "test_affine_grid_?d_align_corners"),
    "reductions": ("test_reduce_sum_*", "test_reduce_l1_*", "test_reduce_log_sum_exp_*"),
    "moves": ("test_slice*", "test_pad*", "test_tile*", "test_expand*", "test_unsqueeze*", "test_onehot*"),
    "scans": ("test_cumsum*", "test_cumprod*"),
}
LEFT = ("*antialias*", "*_expanded", "test_slice_start_out_of_bounds", "test_reduce_*empty_set*")
"""What is not for this back end: smoothing, bodies of functions, and results without elements."""


def _list_cases(group: str) -> list[Case]:
    skips = load_skips()
    return [
        case
        for case in load_cases()
        if case.kind == "node"
        and any(fnmatch.fnmatchcase(case.name, pattern) for pattern in GROUPS[group])
        and not any(fnmatch.fnmatchcase(case.name, pattern) for pattern in LEFT)
        and not any(skip.covers(case.name, "cpu") for skip in skips)
    ]


def _freeze(model: onnx.ModelProto, inputs: list[Any]) -> onnx.ModelProto:
    """A model with all inputs but the first as weights."""
    frozen = onnx.ModelProto()
    frozen.CopyFrom(model)
    pairs = list(zip(model.graph.input, inputs, strict=True))[1:]
    frozen.graph.initializer.extend(onnx.numpy_helper.from_array(array, value.name) for value, array in pairs)
    del frozen.graph.input[1:]
    return frozen


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("group", list(GROUPS))
def test_node_tests_with_constants(paper: Any, group: str) -> None:
    cases, elsewhere = _list_cases(group), []
    assert cases
    for case in cases:
        model, ((inputs, expected), *_) = case.load()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with dovetail.compile(_freeze(model, inputs), providers=["cuda", "cpu"]) as engine:
                if {step.provider for step in engine.manifest.programs[0].steps} != {"cuda"}:
                    elsewhere.append(case.name)
                results = engine(inputs[0])
                compare(expected, list(results.values()) if isinstance(results, dict) else [results], case)
    assert elsewhere == []


HEAD = '<ir_version: 10, opset_import: ["" : 21]> g '


@pytest.mark.parametrize("largest", [0, 1])
def test_a_sort_has_no_number_last_or_first_and_keeps_the_order_of_equal_ones(paper: Any, largest: int) -> None:
    text = f"""(float[3,40] x) => (float[3,40] y, int64[3,40] i) {{
        k = Constant<value=int64[1]{{40}}>() y, i = TopK<axis=1, largest={largest}>(x, k) }}"""
    x = np.random.default_rng(3).integers(-4, 5, (3, 40)).astype(np.float32)
    x[0, [3, 9]], x[1, 5], x[2, 7] = np.nan, np.inf, -np.inf
    engine = dovetail.compile(onnx.parser.parse_model(HEAD + text), providers=["cuda", "cpu"])
    assert {step.provider for step in engine.manifest.programs[0].steps} == {"cuda"}
    result = engine(x)
    # No number is larger than all others; of equal ones the first comes first.
    keys = np.where(np.isnan(x), np.inf, x)
    lasts = ~np.isnan(x) if largest else np.isnan(x)
    order = [np.lexsort((range(40), -k if largest else k, last)) for k, last in zip(keys, lasts, strict=True)]
    np.testing.assert_array_equal(result["i"], order)
    np.testing.assert_array_equal(result["y"], np.take_along_axis(x, np.array(order), 1))


@pytest.mark.parametrize("op", ["RNN", *(pytest.param(op, marks=pytest.mark.slow) for op in ("GRU", "LSTM"))])
def test_long_sequences_in_both_directions(paper: Any, op: str) -> None:
    gates, size = {"RNN": 1, "GRU": 3, "LSTM": 4}[op], 5
    outputs = ["y", "h", "c"][: 3 if op == "LSTM" else 2]
    rng = np.random.default_rng(4)
    arrays = {
        "w": rng.standard_normal((2, gates * size, 3)),
        "r": rng.standard_normal((2, gates * size, size)) * 0.3,
        "b": rng.standard_normal((2, 2 * gates * size)),
    }
    node = onnx.helper.make_node(op, ["x", "w", "r", "b"], outputs, hidden_size=size, direction="bidirectional")
    shapes = {"y": (11, 2, 2, size), "h": (2, 2, size), "c": (2, 2, size)}
    values = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shapes[name]) for name in outputs]
    weights = [onnx.numpy_helper.from_array(array.astype(np.float32), name) for name, array in arrays.items()]
    given = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (11, 2, 3))
    graph = onnx.helper.make_graph([node], "g", [given], values, weights)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)])
    x = rng.standard_normal((11, 2, 3)).astype(np.float32)
    engine = dovetail.compile(model, providers=["cuda", "cpu"])
    assert {step.provider for step in engine.manifest.programs[0].steps} == {"cuda"}
    results, expected = engine(x), dovetail.compile(model, providers=["cpu"])(x)
    for name in outputs:
        np.testing.assert_allclose(results[name], expected[name], rtol=2e-5, atol=2e-5)
